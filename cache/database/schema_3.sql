-- Schema of the fa2 tuning database: from version 2 (schema_2.sql) to version 3.
--
-- An answer says which kernel a context took for a problem that was not tuned, so that the next process takes
-- it without asking the cost model. It is no measurement, and export leaves it out. It holds only until its
-- grounds change: triggers delete it when measurements, winners, verifications or kernels change.
--
-- This text leads from version 2 to 3 for ever: a change is a new script in the list in cache/database/schema.c.

-- The day on which a process last loaded the code, as days since 1970-01-01; 0: before version 3. When the
-- file reaches its size limit, the code that was used longest ago is dropped first.
ALTER TABLE image ADD COLUMN used INTEGER NOT NULL DEFAULT 0;

-- Settings of this file. max_bytes: its size limit.
CREATE TABLE setting (
    name  TEXT    PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The kernel that was chosen for a problem that was not tuned, and the grounds of the choice (fa2_explain).
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
    corrected   INTEGER NOT NULL, -- 1: measurements of another class correct the model, the nearest of `kin`
    kin         BLOB    NOT NULL, -- fa2_problem
    passed      INTEGER NOT NULL, -- kernels that come before it and can never be used
    passed_over TEXT    NOT NULL, -- the first of them,
    why         TEXT    NOT NULL  -- and why it cannot
) STRICT;

CREATE INDEX answer_kernel ON answer (kernel);

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
