-- FOCUS 1.0 with AWS columns: the cost of each accelerated instance in each hour after all discounts (EffectiveCost),
-- and the cost of unused commitments. One row per instance and hour, and per commitment and period. Purchases, taxes,
-- credits and corrections of earlier bills are not part of an instance's price and are left out. Lines without cost
-- and list price are from a Capacity Block, which is prepaid; its other lines have only fees of the operating system.
-- No column says whether a bill is closed: it counts as closed two weeks after its period's end.
-- Amounts are cast to DECIMAL line by line, so that sums are exact in any engine.
WITH lines AS (
  SELECT
    CASE
      WHEN CommitmentDiscountStatus = 'Unused' AND CommitmentDiscountCategory = 'Spend' THEN 'unused-savings-plan'
      WHEN CommitmentDiscountStatus = 'Unused' THEN 'unused-reservation'
      WHEN regexp_like(x_UsageType, '(^|-)Unused(Box|Ded):') THEN 'unused-capacity-reservation'
      ELSE 'instance'
    END AS kind,
    ChargePeriodStart AS usage_start,
    ChargePeriodEnd AS usage_end,
    SubAccountId AS account,
    coalesce(RegionId, '') AS region,
    CASE
      WHEN CommitmentDiscountStatus = 'Unused' THEN CommitmentDiscountId
      WHEN regexp_like(x_UsageType, '(^|-)Unused(Box|Ded):') THEN ResourceId
      WHEN x_ServiceCode = 'AmazonSageMaker'
        THEN coalesce(nullif(regexp_extract(ResourceId, 'i-[0-9a-f]{8,}$$'), ''), 'sagemaker')
      ELSE regexp_extract(ResourceId, 'i-[0-9a-f]+$$')
    END AS resource,
    split_part(x_UsageType, ':', 2) AS instance_type,
    CASE
      WHEN regexp_like(x_UsageType, '(^|-)SpotUsage:') THEN 'spot'
      ELSE 'on-demand'
    END AS capacity_type,
    '' AS reservation,
    CASE WHEN regexp_like(x_UsageType, '(^|-)SpotUsage:') THEN '' ELSE coalesce(x_Operation, '') END AS operation,
    CAST(
      CASE WHEN CommitmentDiscountStatus = 'Unused' THEN NULL ELSE ConsumedQuantity END AS DECIMAL(38, 12)
    ) AS hours,
    CAST(EffectiveCost AS DECIMAL(38, 12)) AS amount,
    BillingCurrency AS currency,
    CASE WHEN BillingPeriodEnd <= TIMESTAMP '$closed_before' THEN 1 ELSE 0 END AS is_final
  FROM $table
  WHERE billing_period BETWEEN '$first_period' AND '$last_period'
    AND ChargePeriodStart >= TIMESTAMP '$start'
    AND ChargePeriodStart < TIMESTAMP '$end'
    AND ChargeCategory = 'Usage'
    AND coalesce(ChargeClass, '') <> 'Correction'
    AND (
      (
        x_ServiceCode = 'AmazonEC2'
        AND regexp_like(split_part(x_UsageType, ':', 2), '$accelerated')
        AND (
          (
            coalesce(CommitmentDiscountStatus, '') <> 'Unused'
            AND regexp_like(x_UsageType, '(^|-)(Box|Dedicated|Heavy|Spot)Usage:')
            AND regexp_like(ResourceId, '(^|/)i-[0-9a-f]+$$')
            AND NOT (
              EffectiveCost = 0
              AND coalesce(ListCost, 0) = 0
              AND NOT regexp_like(x_UsageType, '(^|-)SpotUsage:')
            )
          )
          OR CommitmentDiscountStatus = 'Unused'
          OR regexp_like(x_UsageType, '(^|-)Unused(Box|Ded):')
        )
      )
      OR (
        x_ServiceCode = 'AmazonSageMaker'
        AND coalesce(CommitmentDiscountStatus, '') <> 'Unused'
        AND regexp_like(x_UsageType, '(^|-)Cluster:ml[.]')
        AND regexp_like(split_part(x_UsageType, ':', 2), '$accelerated')
      )
      OR (
        x_ServiceCode = 'ComputeSavingsPlans'
        AND CommitmentDiscountStatus = 'Unused'
        AND (
          regexp_like(x_UsageType, '(^|-)ComputeSP:')
          OR (
            regexp_like(x_UsageType, '(^|-)EC2SP:')
            AND regexp_like(split_part(x_UsageType, ':', 2), '$accelerated')
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
