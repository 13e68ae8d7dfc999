"""What every route stands on: access, parameters, paging, problem documents."""
