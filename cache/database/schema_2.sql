-- Schema of the fa2 tuning database: from version 1 (schema.sql) to version 2.
--
-- A problem's columns are the fields of runtime/base/problem.def. This script makes the first ones.
-- cache/database/columns.c adds the fields that came later, after them. It also makes the objects that list the
-- fields: the index problem_fields, and the views `winners` and `measurements` (view_*.sql).
--
-- A kernel's class is a text that says which problems it serves. Its recipe says how it is launched. The
-- seal binds both to the code, with everything else that decides what runs. Kernels with equal code
-- share it.
--
-- This text leads from version 1 to 2 for ever: a change is a new script in the list in cache/database/schema.c.
-- The functions fa2_1_... (version_1.c) translate the values of version 1.

DROP VIEW winners;
DROP VIEW measurements;

CREATE TEMP TABLE problem_1 AS SELECT * FROM problem;
CREATE TEMP TABLE kernel_1 AS
SELECT *,
       fa2_1_class(variant) AS class,
       fa2_1_recipe(variant, launch_abi, threads, block_rows, smem_bytes, key_step, waves) AS recipe
FROM kernel;

DROP TABLE problem;

-- A problem that a caller may ask for. Two problems differ in at least one field (index problem_fields).
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
    causal   INTEGER NOT NULL,
    class    TEXT    NOT NULL, -- the fields that are compiled in: "D=64 dtype=fp16 causal=1"
    gflop    REAL    NOT NULL  -- 1e9 additions and multiplications: 1000 gflop / us are TFLOPS
    -- fields that came later follow
) STRICT;

INSERT INTO problem
SELECT id, op, dtype, batch, heads_q, heads_kv, seq_q, seq_k, head_dim, causal,
       fa2_1_class(printf('d=%d dtype=%s causal=%d', head_dim, dtype, causal)),
       4e-9 * batch * heads_q * seq_q * seq_k * head_dim / (1 + causal)
FROM temp.problem_1;

-- The code of one kernel, or of several.
CREATE TABLE code (
    id   INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32), -- of data
    data BLOB NOT NULL                                   -- a cubin, or PTX
) STRICT;

-- Damaged code is not copied.
INSERT INTO code (hash, data)
SELECT fa2_hash(i.data), i.data
FROM image i
JOIN kernel k ON k.id = i.kernel
WHERE i.hash = fa2_1_image_hash(i.data, k.threads, k.block_rows, k.smem_bytes, k.key_step, k.waves)
ON CONFLICT DO NOTHING;

CREATE TEMP TABLE image_1 AS
SELECT k.id AS kernel, c.id AS code,
       fa2_seal(k.key, k.variant, k.class, k.recipe, k.target, c.data) AS seal
FROM image i
JOIN temp.kernel_1 k ON k.id = i.kernel
JOIN code c ON c.hash = fa2_hash(i.data)
WHERE i.hash = fa2_1_image_hash(i.data, k.threads, k.block_rows, k.smem_bytes, k.key_step, k.waves)
  AND k.class <> '' AND k.recipe <> '';

DROP TABLE image;
DROP TABLE kernel;

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

INSERT INTO kernel
SELECT id, key, variant, class, recipe, target, nvrtc, generator, outcome, registers, spill_bytes,
       compile_ms, log
FROM temp.kernel_1;

-- The code of each kernel.
CREATE TABLE image (
    kernel INTEGER PRIMARY KEY REFERENCES kernel (id) ON DELETE CASCADE,
    code   INTEGER NOT NULL REFERENCES code (id),
    -- Hash of the kernel's key, variant, class, recipe and target, and of the code; checked on every
    -- load.
    seal   BLOB NOT NULL CHECK (length(seal) = 32)
) STRICT;

INSERT INTO image SELECT kernel, code, seal FROM temp.image_1;

CREATE INDEX image_code ON image (code);

-- Code is deleted with the last image that uses it.
CREATE TRIGGER image_deleted AFTER DELETE ON image
BEGIN
    DELETE FROM code
    WHERE id = OLD.code AND NOT EXISTS (SELECT 1 FROM image WHERE code = OLD.code);
END;

DELETE FROM code WHERE id NOT IN (SELECT code FROM image);

-- 1: the session's times come from the cost model or from a software device.
ALTER TABLE session ADD COLUMN modelled INTEGER NOT NULL DEFAULT 0;

UPDATE session SET modelled = 1
WHERE id IN (SELECT session FROM winner WHERE measured = 0);

DROP TABLE temp.problem_1;
DROP TABLE temp.kernel_1;
DROP TABLE temp.image_1;
