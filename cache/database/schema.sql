-- Schema of the fa2 tuning database, version 1 (PRAGMA user_version).
--
-- People read the views `winners` and `measurements`:
--     sqlite3 fa2.db 'select * from winners'
-- Times are microseconds, sizes are bytes, dates are ISO 8601 text in UTC. A NULL error is an error
-- that is not finite. Outcomes: ok, compile_error, spilled, wrong, fault, hang, launch_error.
--
-- This text is version 1 for ever: a change is a new script in the list in cache/database/schema.c.

PRAGMA application_id = 0x46413254; -- "FA2T"

-- A GPU model, or the card that stands for an SM in a build without a GPU. The columns of the UNIQUE
-- list tell two cards apart; the cost model uses the others.
CREATE TABLE device (
    id               INTEGER PRIMARY KEY,
    name             TEXT    NOT NULL,
    arch             INTEGER NOT NULL, -- 86 is SM 8.6
    sm_count         INTEGER NOT NULL,
    smem_block_bytes INTEGER NOT NULL, -- opt-in shared memory per block
    smem_sm_bytes    INTEGER NOT NULL,
    l2_bytes         INTEGER NOT NULL,
    clock_khz        INTEGER NOT NULL,
    bandwidth_bytes  INTEGER NOT NULL, -- device memory, per second
    real             INTEGER NOT NULL CHECK (real IN (0, 1)), -- 0: stands for an SM
    UNIQUE (name, arch, sm_count, smem_block_bytes, l2_bytes, real)
) STRICT;

-- A problem that a caller may ask for.
CREATE TABLE problem (
    id       INTEGER PRIMARY KEY,
    op       TEXT    NOT NULL, -- forward
    dtype    TEXT    NOT NULL, -- fp16, bf16
    batch    INTEGER NOT NULL,
    heads_q  INTEGER NOT NULL,
    heads_kv INTEGER NOT NULL,
    seq_q    INTEGER NOT NULL,
    seq_k    INTEGER NOT NULL,
    head_dim INTEGER NOT NULL,
    causal   INTEGER NOT NULL CHECK (causal IN (0, 1)),
    UNIQUE (op, dtype, batch, heads_q, heads_kv, seq_q, seq_k, head_dim, causal)
) STRICT;

-- A compiled variant, or the record that it does not compile. Its code, if any, is in `image`.
CREATE TABLE kernel (
    id          INTEGER PRIMARY KEY,
    key         BLOB    NOT NULL UNIQUE CHECK (length(key) = 32), -- hash of what made it
    launch_abi  INTEGER NOT NULL, -- version of the kernel's parameter block
    variant     TEXT    NOT NULL, -- family and parameters: "fwd_sm80 d=64 dtype=fp16 ..."
    target      TEXT    NOT NULL, -- sm_86: the image is a cubin; compute_86: PTX
    threads     INTEGER NOT NULL, -- per block
    block_rows  INTEGER NOT NULL, -- query rows per block
    smem_bytes  INTEGER NOT NULL, -- dynamic shared memory per block
    nvrtc       INTEGER NOT NULL, -- 1000 * major + 10 * minor
    generator   TEXT    NOT NULL, -- hash of scripts and templates
    outcome     TEXT    NOT NULL,
    registers   INTEGER NOT NULL, -- per thread; 0 for PTX
    spill_bytes INTEGER NOT NULL, -- per thread
    compile_ms  REAL    NOT NULL,
    log         TEXT,             -- the compiler's words
    key_step    INTEGER NOT NULL, -- keys that a block visits in one step
    waves       INTEGER NOT NULL  -- blocks per SM aimed at by splitting the keys; 0: not split
) STRICT;

-- The code of kernels. It has its own table, so that reading `kernel` does not read the code's pages.
CREATE TABLE image (
    kernel INTEGER PRIMARY KEY REFERENCES kernel (id) ON DELETE CASCADE,
    hash   BLOB NOT NULL CHECK (length(hash) = 32), -- of data and launch; checked on every load
    data   BLOB NOT NULL
) STRICT;

-- One run of a tuner, a build or an import, which made results.
CREATE TABLE session (
    id         INTEGER PRIMARY KEY,
    device     INTEGER NOT NULL REFERENCES device (id),
    driver     INTEGER NOT NULL, -- 1000 * major + 10 * minor; 0 without a GPU
    nvrtc      INTEGER NOT NULL,
    generator  TEXT    NOT NULL,
    origin     TEXT    NOT NULL, -- tune, build, import
    started_at TEXT    NOT NULL,
    ended_at   TEXT              -- NULL: still running, or stopped before its end
) STRICT;

-- The verification of a kernel on a device. It does not depend on the tuned problem.
CREATE TABLE verification (
    device      INTEGER NOT NULL REFERENCES device (id),
    kernel      INTEGER NOT NULL REFERENCES kernel (id) ON DELETE CASCADE,
    outcome     TEXT    NOT NULL,
    max_error   REAL,             -- largest error over its bound: <= 1 is right
    detail      TEXT    NOT NULL, -- the worst case, or what failed
    verified_at TEXT    NOT NULL,
    PRIMARY KEY (device, kernel)
) STRICT, WITHOUT ROWID;

-- The time, or the failure, of one kernel on one problem on one device. Losers stay, too.
CREATE TABLE measurement (
    device      INTEGER NOT NULL REFERENCES device (id),
    problem     INTEGER NOT NULL REFERENCES problem (id),
    kernel      INTEGER NOT NULL REFERENCES kernel (id) ON DELETE CASCADE,
    session     INTEGER NOT NULL REFERENCES session (id),
    outcome     TEXT    NOT NULL,
    settled     INTEGER NOT NULL CHECK (settled IN (0, 1)), -- 1: a later run skips it
    n           INTEGER NOT NULL, -- samples
    min_us      REAL    NOT NULL,
    q1_us       REAL    NOT NULL,
    median_us   REAL    NOT NULL,
    q3_us       REAL    NOT NULL,
    max_error   REAL,             -- on sampled rows, over its bound; 0: not checked
    detail      TEXT    NOT NULL,
    measured_at TEXT    NOT NULL,
    PRIMARY KEY (device, problem, kernel)
) STRICT, WITHOUT ROWID;

-- The kernel that the runtime uses for a problem on a device.
CREATE TABLE winner (
    device     INTEGER NOT NULL REFERENCES device (id),
    problem    INTEGER NOT NULL REFERENCES problem (id),
    kernel     INTEGER NOT NULL REFERENCES kernel (id),
    session    INTEGER NOT NULL REFERENCES session (id),
    measured   INTEGER NOT NULL CHECK (measured IN (0, 1)), -- 0: ranked by the cost model
    median_us  REAL    NOT NULL, -- 0: not measured
    default_us REAL    NOT NULL, -- the default variant's median in that session; 0: not measured
    model_us   REAL    NOT NULL, -- the cost model's time
    tuned_at   TEXT    NOT NULL,
    PRIMARY KEY (device, problem)
) STRICT, WITHOUT ROWID;

-- They find the rows that refer to a kernel (clean-up, rebinding, deletion).
CREATE INDEX verification_kernel ON verification (kernel);
CREATE INDEX measurement_kernel ON measurement (kernel);
CREATE INDEX measurement_problem ON measurement (problem);
CREATE INDEX winner_kernel ON winner (kernel);
CREATE INDEX session_device ON session (device);

-- The kernel that the runtime uses for each tuned problem. tflops counts 4 B Hq Sq Sk D operations,
-- half as many if causal. speedup_vs_default compares with the untuned choice, timed in the same
-- session; NULL: it was not timed.
CREATE VIEW winners AS
SELECT d.name AS device,
       d.arch,
       p.op,
       p.dtype,
       p.batch,
       p.heads_q,
       p.heads_kv,
       p.seq_q,
       p.seq_k,
       p.head_dim,
       p.causal,
       CASE WHEN w.measured THEN round(w.median_us, 3) END AS median_us,
       CASE WHEN w.measured THEN
           round(4e-6 * p.batch * p.heads_q * p.seq_q * p.seq_k * p.head_dim
                 / (1 + p.causal) / w.median_us, 3) END AS tflops,
       CASE WHEN w.measured THEN
           round(nullif(w.default_us, 0) / w.median_us, 3) END AS speedup_vs_default,
       CASE WHEN w.measured THEN 'measured' ELSE 'modelled' END AS source,
       k.variant,
       w.tuned_at,
       k.registers,
       k.spill_bytes,
       k.smem_bytes,
       k.threads,
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
JOIN kernel k ON k.id = w.kernel
JOIN session s ON s.id = w.session
LEFT JOIN image i ON i.kernel = w.kernel;

-- Every variant tried, including losers and failures. outcome is the measurement's or, if that is ok,
-- the outcome of the kernel's verification on the device. max_error is the larger one of the two.
CREATE VIEW measurements AS
SELECT d.name AS device,
       d.arch,
       p.op,
       p.dtype,
       p.batch,
       p.heads_q,
       p.heads_kv,
       p.seq_q,
       p.seq_k,
       p.head_dim,
       p.causal,
       k.variant,
       CASE WHEN m.outcome = 'ok' THEN coalesce(v.outcome, 'ok') ELSE m.outcome END AS outcome,
       w.kernel IS NOT NULL AS winner,
       m.n,
       CASE WHEN m.n > 0 THEN round(m.min_us, 3) END AS min_us,
       CASE WHEN m.n > 0 THEN round(m.q1_us, 3) END AS q1_us,
       CASE WHEN m.n > 0 THEN round(m.median_us, 3) END AS median_us,
       CASE WHEN m.n > 0 THEN round(m.q3_us, 3) END AS q3_us,
       CASE WHEN m.n > 0 AND m.median_us > 0 THEN
           round(4e-6 * p.batch * p.heads_q * p.seq_q * p.seq_k * p.head_dim
                 / (1 + p.causal) / m.median_us, 3) END AS tflops,
       round(CASE WHEN v.kernel IS NULL THEN m.max_error
                  ELSE max(m.max_error, v.max_error) END, 4) AS max_error,
       v.outcome AS verification, -- NULL: not verified on this device
       m.settled,
       coalesce(nullif(m.detail, ''),
                CASE WHEN v.outcome <> 'ok' THEN v.detail END,
                substr(k.log, 1, instr(k.log || char(10), char(10)) - 1)) AS detail,
       k.registers,
       k.spill_bytes,
       k.smem_bytes,
       k.threads,
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
JOIN kernel k ON k.id = m.kernel
JOIN session s ON s.id = m.session
LEFT JOIN verification v ON v.device = m.device AND v.kernel = m.kernel
LEFT JOIN winner w ON w.device = m.device AND w.problem = m.problem AND w.kernel = m.kernel;
