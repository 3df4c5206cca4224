-- Schema of the fa2 tuning database, version 4 (PRAGMA user_version). Files of other versions are refused.
--
-- People read the views `winners` and `measurements` (view_*.sql):
--     sqlite3 fa2.db 'select * from winners'
-- Times are microseconds, sizes are bytes, dates are ISO 8601 text in UTC. A NULL error is an error
-- that is not finite. Outcomes: ok, compile_error, spilled, wrong, fault, hang, launch_error.
--
-- A problem's columns are the fields of runtime/base/problem.def. This script makes the first ones.
-- cache/database/columns.c adds the fields that came later, after them. It also makes the objects that list the
-- fields: the index problem_fields, and the two views.
--
-- A kernel's class is a text that says which problems it serves. Its recipe says how it is launched. The
-- seal binds both to the code, with everything else that decides what runs. Kernels with equal code
-- share it.

PRAGMA application_id = 0x46413254; -- "FA2T"

-- A GPU model, or the card that stands for an SM in a build without a GPU. The columns of the UNIQUE
-- list tell two cards apart; the cost model uses the others. "proxy sm_86 on NVIDIA H100" is a GPU that
-- played an older SM (tune --arch). Its times are evidence for no call.
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

-- A problem that a caller may ask for. Two problems differ in at least one field (index problem_fields).
CREATE TABLE problem (
    id       INTEGER PRIMARY KEY,
    op       TEXT    NOT NULL, -- forward
    dtype    TEXT    NOT NULL, -- fp16, bf16, fp32
    batch    INTEGER NOT NULL,
    heads_q  INTEGER NOT NULL,
    heads_kv INTEGER NOT NULL,
    seq_q    INTEGER NOT NULL,
    seq_k    INTEGER NOT NULL,
    head_dim INTEGER NOT NULL,
    causal   INTEGER NOT NULL,
    class    TEXT    NOT NULL, -- the fields that are compiled in: "D=64 dtype=fp16 causal=1"
    gflop    REAL    NOT NULL  -- 1e9 additions and multiplications: 1000 gflop / us are TFLOPS
    -- fields that came later follow
) STRICT;

-- A compiled variant, or the record that it does not compile. Its code, if any, is in `image`.
CREATE TABLE kernel (
    id          INTEGER PRIMARY KEY,
    key         BLOB    NOT NULL UNIQUE CHECK (length(key) = 32), -- hash of what made it
    variant     TEXT    NOT NULL, -- family and parameters: "fwd_sm80 d=64 dtype=fp16 ..."
    class       TEXT    NOT NULL, -- it serves problems of this class, and no others
    recipe      TEXT    NOT NULL, -- how it is launched, step by step
    target      TEXT    NOT NULL, -- sm_86: the code is a cubin; compute_86: PTX
    nvrtc       INTEGER NOT NULL, -- 1000 * major + 10 * minor
    generator   TEXT    NOT NULL, -- hash of scripts and templates
    outcome     TEXT    NOT NULL,
    registers   INTEGER NOT NULL, -- per thread; 0 for PTX
    spill_bytes INTEGER NOT NULL, -- per thread
    compile_ms  REAL    NOT NULL,
    log         TEXT              -- the compiler's words
) STRICT;

-- The code of one kernel, or of several.
CREATE TABLE code (
    id   INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32), -- of data
    data BLOB NOT NULL                                   -- a cubin, or PTX
) STRICT;

-- The code of each kernel.
CREATE TABLE image (
    kernel INTEGER PRIMARY KEY REFERENCES kernel (id) ON DELETE CASCADE,
    code   INTEGER NOT NULL REFERENCES code (id),
    -- Hash of the kernel's key, variant, class, recipe and target, and of the code; checked on every
    -- load.
    seal   BLOB NOT NULL CHECK (length(seal) = 32),
    -- The day on which a process last loaded the code, as days since 1970-01-01; 0: never. When the file
    -- reaches its size limit, the code that was used longest ago is dropped first.
    used   INTEGER NOT NULL DEFAULT 0
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
    ended_at   TEXT,             -- NULL: still running, or stopped before its end
    modelled   INTEGER NOT NULL DEFAULT 0 -- 1: its times come from the cost model or from a software device
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

-- Settings of this file. max_bytes: its size limit.
CREATE TABLE setting (
    name  TEXT    PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Which kernel a context took for a problem that was not tuned, so that the next process takes it without
-- asking the cost model, and the grounds of the choice (fa2_explain). It is no measurement, and export
-- leaves it out. It holds only until its grounds change: triggers delete it when measurements, winners,
-- verifications or kernels change.
CREATE TABLE answer (
    id          INTEGER PRIMARY KEY, -- grows; the oldest answers leave first
    question    BLOB    NOT NULL UNIQUE CHECK (length(question) = 32), -- hash of the problem and the card
    basis       BLOB    NOT NULL CHECK (length(basis) = 32), -- hash of scripts, templates, shipped times
    kind        TEXT    NOT NULL, -- the class of the problem and of the kernel
    kernel      INTEGER NOT NULL REFERENCES kernel (id) ON DELETE CASCADE,
    rule        INTEGER NOT NULL, -- fa2_rule; 3: the cost model's choice
    tried       INTEGER NOT NULL, -- kernels that were tried
    estimate_us REAL    NOT NULL, -- of the kernel's time on the problem
    measured    INTEGER NOT NULL, -- 1: the estimate rests on a measurement, of the problem `near`
    near_us     REAL    NOT NULL, -- the kernel's time there; 0: none
    distance    REAL    NOT NULL, -- from there
    card        TEXT    NOT NULL, -- the name of the card of that
    real        INTEGER NOT NULL, -- 0: it stands for an SM
    near        BLOB    NOT NULL, -- fa2_problem: where the kernel was measured, or that the model was asked about
    corrected   INTEGER NOT NULL, -- 1: measurements of another class correct the model, the nearest of `neighbour`
    neighbour   BLOB    NOT NULL, -- fa2_problem
    passed      INTEGER NOT NULL, -- kernels that come before it and can never be used
    passed_over TEXT    NOT NULL, -- the first of them,
    why         TEXT    NOT NULL  -- and why it cannot
) STRICT;

-- They find the rows that refer to a kernel (clean-up, rebinding, deletion).
CREATE INDEX verification_kernel ON verification (kernel);
CREATE INDEX measurement_kernel ON measurement (kernel);
CREATE INDEX measurement_problem ON measurement (problem);
CREATE INDEX winner_kernel ON winner (kernel);
CREATE INDEX session_device ON session (device);
CREATE INDEX image_code ON image (code);
CREATE INDEX answer_kernel ON answer (kernel);

-- Code is deleted with the last image that uses it.
CREATE TRIGGER image_deleted AFTER DELETE ON image
BEGIN
    DELETE FROM code
    WHERE id = OLD.code AND NOT EXISTS (SELECT 1 FROM image WHERE code = OLD.code);
END;

CREATE TRIGGER measurement_added   AFTER INSERT ON measurement  BEGIN DELETE FROM answer; END;
CREATE TRIGGER measurement_changed AFTER UPDATE ON measurement  BEGIN DELETE FROM answer; END;
CREATE TRIGGER measurement_gone    AFTER DELETE ON measurement  BEGIN DELETE FROM answer; END;
CREATE TRIGGER winner_added        AFTER INSERT ON winner       BEGIN DELETE FROM answer; END;
CREATE TRIGGER winner_changed      AFTER UPDATE ON winner       BEGIN DELETE FROM answer; END;
CREATE TRIGGER winner_gone         AFTER DELETE ON winner       BEGIN DELETE FROM answer; END;
CREATE TRIGGER verification_added   AFTER INSERT ON verification BEGIN DELETE FROM answer; END;
CREATE TRIGGER verification_changed AFTER UPDATE ON verification BEGIN DELETE FROM answer; END;
CREATE TRIGGER verification_gone    AFTER DELETE ON verification BEGIN DELETE FROM answer; END;

-- A kernel is compared only with kernels of its class.
CREATE TRIGGER kernel_changed AFTER UPDATE ON kernel
BEGIN
    DELETE FROM answer WHERE kind IN (OLD.class, NEW.class);
END;
CREATE TRIGGER image_added AFTER INSERT ON image
BEGIN
    DELETE FROM answer WHERE kind = (SELECT class FROM kernel WHERE id = NEW.kernel);
END;
CREATE TRIGGER image_gone AFTER DELETE ON image
BEGIN
    DELETE FROM answer WHERE kind = (SELECT class FROM kernel WHERE id = OLD.kernel);
END;
