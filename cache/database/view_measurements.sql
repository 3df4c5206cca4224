-- The view `measurements`. $(problem) stands for the columns of the problem's fields. The database stores the text
-- from CREATE on, comments included.

CREATE VIEW measurements AS
-- Every variant tried, losers and failures too. outcome joins the measurement's with that of the
-- kernel's verification on the device; left_out: not timed, for it was expected to be far behind.
-- max_error is the larger of the two. threads and smem_bytes are those of the recipe's main step.
SELECT d.name AS device,
       d.arch,
       $(problem),
       k.variant,
       CASE WHEN m.outcome <> 'ok' THEN m.outcome
            WHEN v.outcome <> 'ok' THEN v.outcome
            ELSE iif(m.n > 0, 'ok', 'left_out') END AS outcome,
       w.kernel IS NOT NULL AS winner,
       CASE WHEN m.n > 0 THEN iif(s.modelled, 'modelled', 'measured') END AS source,
       m.n,
       CASE WHEN m.n > 0 THEN round(m.min_us, 3) END AS min_us,
       CASE WHEN m.n > 0 THEN round(m.q1_us, 3) END AS q1_us,
       CASE WHEN m.n > 0 THEN round(m.median_us, 3) END AS median_us,
       CASE WHEN m.n > 0 THEN round(m.q3_us, 3) END AS q3_us,
       CASE WHEN m.n > 0 AND m.median_us > 0 THEN
           round(1000 * p.gflop / m.median_us, 3) END AS tflops,
       round(CASE WHEN v.kernel IS NULL THEN m.max_error
                  ELSE max(m.max_error, v.max_error) END, 4) AS max_error,
       v.outcome AS verification, -- NULL: not verified on this device
       m.settled,
       coalesce(nullif(m.detail, ''),
                CASE WHEN v.outcome <> 'ok' THEN v.detail END,
                substr(k.log, 1, instr(k.log || char(10), char(10)) - 1)) AS detail,
       k.registers,
       k.spill_bytes,
       CAST(substr(k.main, instr(k.main, ' smem=') + 6) AS INTEGER) AS smem_bytes,
       CAST(substr(k.main, instr(k.main, ' threads=') + 9) AS INTEGER) AS threads,
       k.target,
       k.compile_ms,
       s.origin,
       m.measured_at,
       k.nvrtc,
       s.driver,
       k.generator,
       lower(hex(k.key)) AS key
FROM measurement m
JOIN device d ON d.id = m.device
JOIN problem p ON p.id = m.problem
JOIN (SELECT *, substr(recipe, instr(recipe, ' role=main ')) AS main FROM kernel) k
    ON k.id = m.kernel
JOIN session s ON s.id = m.session
LEFT JOIN verification v ON v.device = m.device AND v.kernel = m.kernel
LEFT JOIN winner w ON w.device = m.device AND w.problem = m.problem AND w.kernel = m.kernel;
