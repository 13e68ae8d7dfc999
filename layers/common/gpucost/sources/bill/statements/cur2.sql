-- CUR 2.0, amortized: the cost of each accelerated instance in each hour, and the cost of unused commitments.
-- One row per instance and hour, and per commitment and period. Taxes, credits, refunds, upfront purchases and the
-- negation of Savings Plans are not part of an instance's price and are left out. So are lines of Capacity Blocks without
-- cost: blocks are prepaid, and their lines have only fees of the operating system. Amounts are cast to DECIMAL line by
-- line, so that sums are exact in any engine.
WITH lines AS (
  SELECT
    CASE
      WHEN line_item_line_item_type = 'SavingsPlanRecurringFee' THEN 'unused-savings-plan'
      WHEN line_item_line_item_type = 'RIFee' THEN 'unused-reservation'
      WHEN regexp_like(line_item_usage_type, '(^|-)Unused(Box|Ded):') THEN 'unused-capacity-reservation'
      ELSE 'instance'
    END AS kind,
    line_item_usage_start_date AS usage_start,
    line_item_usage_end_date AS usage_end,
    line_item_usage_account_id AS account,
    coalesce(
      nullif(product_region_code, ''), regexp_extract(line_item_availability_zone, '^[a-z-]+[0-9]+'), ''
    ) AS region,
    CASE line_item_line_item_type
      WHEN 'SavingsPlanRecurringFee' THEN savings_plan_savings_plan_a_r_n
      WHEN 'RIFee' THEN reservation_reservation_a_r_n
      ELSE coalesce(
        CASE WHEN line_item_product_code = 'AmazonSageMaker'
          THEN coalesce(nullif(regexp_extract(line_item_resource_id, 'i-[0-9a-f]{8,}$$'), ''), 'sagemaker') END,
        line_item_resource_id
      )
    END AS resource,
    split_part(line_item_usage_type, ':', 2) AS instance_type,
    CASE
      WHEN regexp_like(line_item_usage_type, '(^|-)SpotUsage:') THEN 'spot'
      WHEN lower(coalesce(capacity_reservation_capacity_reservation_type, '')) LIKE '%capacity%block%'
        THEN 'capacity-block'
      WHEN coalesce(capacity_reservation_capacity_reservation_arn, '') <> '' THEN 'reserved'
      ELSE 'on-demand'
    END AS capacity_type,
    coalesce(capacity_reservation_capacity_reservation_arn, '') AS reservation,
    CASE WHEN regexp_like(line_item_usage_type, '(^|-)SpotUsage:') THEN '' ELSE line_item_operation END AS operation,
    CAST(CASE line_item_line_item_type
      WHEN 'SavingsPlanRecurringFee' THEN NULL
      WHEN 'RIFee' THEN reservation_unused_quantity
      ELSE line_item_usage_amount
    END AS DECIMAL(38, 12)) AS hours,
    CASE line_item_line_item_type
      WHEN 'SavingsPlanCoveredUsage' THEN CAST(savings_plan_savings_plan_effective_cost AS DECIMAL(38, 12))
      WHEN 'DiscountedUsage' THEN CAST(reservation_effective_cost AS DECIMAL(38, 12))
      WHEN 'SavingsPlanRecurringFee' THEN CAST(savings_plan_total_commitment_to_date AS DECIMAL(38, 12))
        - CAST(savings_plan_used_commitment AS DECIMAL(38, 12))
      WHEN 'RIFee' THEN
        CAST(coalesce(reservation_unused_amortized_upfront_fee_for_billing_period, 0) AS DECIMAL(38, 12))
        + CAST(coalesce(reservation_unused_recurring_fee, 0) AS DECIMAL(38, 12))
      ELSE CAST(line_item_unblended_cost AS DECIMAL(38, 12))
    END AS amount,
    line_item_currency_code AS currency,
    CASE WHEN coalesce(bill_invoice_id, '') <> '' THEN 1 ELSE 0 END AS is_final
  FROM $table
  WHERE billing_period BETWEEN '$first_period' AND '$last_period'
    AND line_item_usage_start_date >= TIMESTAMP '$start'
    AND line_item_usage_start_date < TIMESTAMP '$end'
    AND (
      (
        line_item_product_code = 'AmazonEC2'
        AND line_item_line_item_type IN ('Usage', 'SavingsPlanCoveredUsage', 'DiscountedUsage')
        AND regexp_like(split_part(line_item_usage_type, ':', 2), '$accelerated')
        AND (
          (
            regexp_like(line_item_usage_type, '(^|-)(Box|Dedicated|Heavy|Spot)Usage:')
            AND line_item_resource_id LIKE 'i-%'
            -- No cost and no list price: an instance of a Capacity Block, if no column says so.
            AND NOT (
              line_item_line_item_type = 'Usage'
              AND NOT regexp_like(line_item_usage_type, '(^|-)SpotUsage:')
              AND coalesce(line_item_unblended_cost, 0) = 0
              AND (
                coalesce(pricing_public_on_demand_cost, 0) = 0
                OR lower(coalesce(capacity_reservation_capacity_reservation_type, '')) LIKE '%capacity%block%'
              )
            )
          )
          OR (
            regexp_like(line_item_usage_type, '(^|-)Unused(Box|Ded):')
            AND lower(coalesce(capacity_reservation_capacity_reservation_type, '')) NOT LIKE '%capacity%block%'
          )
        )
      )
      OR (
        line_item_product_code = 'AmazonSageMaker'
        AND line_item_line_item_type IN ('Usage', 'SavingsPlanCoveredUsage')
        AND regexp_like(line_item_usage_type, '(^|-)Cluster:ml[.]')
        AND regexp_like(split_part(line_item_usage_type, ':', 2), '$accelerated')
      )
      OR (
        line_item_product_code = 'AmazonEC2'
        AND line_item_line_item_type = 'RIFee'
        AND regexp_like(split_part(line_item_usage_type, ':', 2), '$accelerated')
      )
      OR (
        line_item_line_item_type = 'SavingsPlanRecurringFee'
        AND (
          savings_plan_offering_type = 'ComputeSavingsPlans'
          OR (
            savings_plan_offering_type = 'EC2InstanceSavingsPlans'
            AND regexp_like(savings_plan_instance_type_family, '$accelerated')
          )
        )
      )
    )
)
SELECT
  kind,
  date_format(usage_start, '%Y-%m-%dT%H:%i:%sZ') AS usage_start,
  date_format(max(usage_end), '%Y-%m-%dT%H:%i:%sZ') AS usage_end,
  account,
  region,
  resource,
  instance_type,
  capacity_type,
  operation,
  sum(hours) AS hours,
  sum(amount) AS amount,
  currency,
  min(is_final) AS is_final,
  reservation
FROM lines
GROUP BY
  kind, usage_start, account, region, resource, instance_type, capacity_type, reservation, operation, currency
HAVING kind = 'instance' OR sum(amount) <> 0
ORDER BY 2, 1, 6, 4, 5, 7, 8, 9, 12, 14
