"""OpenCost's query language, read as its own source reads it: windows, aggregations, filters.

Source: opencost/opencost at 5f65333 (October 2024): core/pkg/opencost/{window,allocation,allocationprops}.go,
core/pkg/filter/ast/{lexer,parser,ops}.go, pkg/costmodel/aggregation.go, docs/swagger.json.
"""
