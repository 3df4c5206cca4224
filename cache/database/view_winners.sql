-- The view `winners`. $(problem) stands for the columns of the problem's fields. The database stores the text from
-- CREATE on, comments included.

CREATE VIEW winners AS
-- What the runtime uses for each tuned problem. speedup_vs_default compares with the untuned choice,
-- timed in the same session; NULL: that was not timed. threads and smem_bytes are those of the
-- recipe's main step.
SELECT d.name AS device,
       d.arch,
       $(problem),
       CASE WHEN w.measured THEN round(w.median_us, 3) END AS median_us,
       CASE WHEN w.measured THEN round(1000 * p.gflop / w.median_us, 3) END AS tflops,
       CASE WHEN w.measured THEN
           round(nullif(w.default_us, 0) / w.median_us, 3) END AS speedup_vs_default,
       CASE WHEN w.measured THEN 'measured' ELSE 'modelled' END AS source,
       k.variant,
       w.tuned_at,
       k.registers,
       k.spill_bytes,
       CAST(substr(k.main, instr(k.main, ' smem=') + 6) AS INTEGER) AS smem_bytes,
       CAST(substr(k.main, instr(k.main, ' threads=') + 9) AS INTEGER) AS threads,
       k.target,
       round(w.model_us, 3) AS model_us,
       CASE WHEN w.measured THEN round(nullif(w.default_us, 0), 3) END AS default_us,
       s.origin, -- tune, build, import
       i.kernel IS NOT NULL AS has_image, -- 0: must be compiled before use
       k.nvrtc,
       s.driver,
       k.generator,
       lower(hex(k.key)) AS key
FROM winner w
JOIN device d ON d.id = w.device
JOIN problem p ON p.id = w.problem
JOIN (SELECT *, substr(recipe, instr(recipe, ' role=main ')) AS main FROM kernel) k
    ON k.id = w.kernel
JOIN session s ON s.id = w.session
LEFT JOIN image i ON i.kernel = w.kernel;
