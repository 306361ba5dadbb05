-- The gate: the newest fence per resource. The triggers refuse a former holder; they end the transaction that wrote.
CREATE TABLE IF NOT EXISTS syncguard_fence_gates (
    resource TEXT NOT NULL PRIMARY KEY,
    fence INTEGER NOT NULL
) WITHOUT ROWID;
----
CREATE TRIGGER IF NOT EXISTS syncguard_fence_gates_pass BEFORE INSERT ON syncguard_fence_gates
BEGIN
    SELECT RAISE(ROLLBACK, 'syncguard: the name of the resource is empty or longer than 512 bytes')
        WHERE typeof(NEW.resource) <> 'text' OR length(CAST(NEW.resource AS BLOB)) NOT BETWEEN 1 AND 512;
    SELECT RAISE(ROLLBACK, 'syncguard: the fence is not a number from 1 to 900000000000000')
        WHERE typeof(NEW.fence) <> 'integer' OR NEW.fence NOT BETWEEN 1 AND 900000000000000;
    SELECT RAISE(ROLLBACK, 'syncguard: refused, a newer holder has written')
        WHERE EXISTS (SELECT 1 FROM syncguard_fence_gates WHERE resource = NEW.resource AND fence > NEW.fence);
END;
----
CREATE TRIGGER IF NOT EXISTS syncguard_fence_gates_back BEFORE UPDATE ON syncguard_fence_gates
    WHEN NEW.fence < OLD.fence OR NEW.resource <> OLD.resource
BEGIN
    SELECT RAISE(ROLLBACK, 'syncguard: a gate is not set back; delete its row to reset it');
END;
