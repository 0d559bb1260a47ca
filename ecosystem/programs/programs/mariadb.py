"""MariaDB: queries, locks, SIGTERM, recovery after kill -9, with and without its own io_uring."""

import shutil
import time

from programs import mariadbd

NEEDS = mariadbd.NEEDS
VERSION = ("mariadbd", "--version")
BOUND = 400
KNOWN = {}


def run(side):
    server = mariadbd.Server(side)
    if not side.test("mariadb-install-db makes the folder", server.install() == 0):
        shutil.rmtree(server.data, ignore_errors=True)
        side.require("it does with plain threads", server.install(preload=False) == 0)
    for native in (0, 1):
        server.options = (f"--innodb-use-native-aio={native}",)
        with_ring = "own io_uring" if native else "no io_uring"
        lives(side, server, with_ring)
        if server.process.poll() is None:
            server.kill()


def lives(side, server, which):
    """What a server must do, from its start to its recovery."""
    if not side.test(f"{which}: starts", server.begin()):
        return
    if which == "own io_uring":
        side.test(f"{which}: uses it", server.said("InnoDB: Using io_uring"))
    queries(side, server, which)
    status = side.ends(server.process, seconds=60)
    side.test(f"{which}: SIGTERM ends it", status == 0, status)
    if not side.test(f"{which}: starts again", server.begin()):
        return
    count = server.sql("SELECT COUNT(*), SUM(n) FROM sb.numbers")
    side.test(f"{which}: the rows are there", count == "1000\t500500", count)
    recovers(side, server, which)
    status = side.ends(server.process, seconds=60)
    side.test(f"{which}: SIGTERM ends it after the recovery", status == 0, status)


def queries(side, server, which):
    server.sql(
        "DROP DATABASE IF EXISTS sb; CREATE DATABASE sb; "
        "CREATE TABLE sb.numbers (n INT PRIMARY KEY) ENGINE=InnoDB"
    )
    rows = ",".join(f"({n})" for n in range(1, 1001))
    server.sql(f"INSERT INTO sb.numbers VALUES {rows}")
    answer = server.sql("SELECT COUNT(*), SUM(n) FROM sb.numbers")
    side.test(f"{which}: queries", answer == "1000\t500500", answer)

    sleeper = server.ask("SELECT SLEEP(300)")
    find = "SELECT ID FROM information_schema.PROCESSLIST WHERE INFO = 'SELECT SLEEP(300)'"
    side.until(lambda: server.sql(find).isdigit(), seconds=20)
    server.sql(f"KILL {server.sql(find)}")
    side.test(f"{which}: KILL ends a query that sleeps", ended(sleeper, 20))

    holder = server.ask(
        "START TRANSACTION; SELECT * FROM sb.numbers WHERE n = 1 FOR UPDATE; SELECT SLEEP(6)"
    )
    side.until(
        lambda: "FOR UPDATE" in server.sql("SHOW ENGINE INNODB STATUS")
        or "SLEEP(6)"
        in server.sql("SELECT GROUP_CONCAT(INFO) FROM information_schema.PROCESSLIST"),
        seconds=5,
    )
    begin = time.monotonic()
    waited = server.sql("SET innodb_lock_wait_timeout=2; UPDATE sb.numbers SET n = 1 WHERE n = 1")
    side.test(
        f"{which}: a wait for a row ends by its timeout",
        "Lock wait timeout" in waited and 1 < time.monotonic() - begin < 4,
        waited,
    )
    side.test(f"{which}: the holder ends", ended(holder, 20))
    waited = server.sql("SELECT GET_LOCK('a', 1), SLEEP(0.1), RELEASE_LOCK('a')")
    side.test(f"{which}: user locks and sleeps", waited == "1\t0\t1", waited)


def recovers(side, server, which):
    """kill -9 under load; then everything that was acknowledged is there."""
    prepared = side.plain(server.sysbench("oltp_write_only", "prepare"))
    side.test(f"{which}: sysbench fills its tables", prepared.status == 0, prepared.output[-200:])
    server.sql("CREATE OR REPLACE TABLE sb.acknowledged (n INT PRIMARY KEY) ENGINE=InnoDB")
    load = side.start(
        server.sysbench("oltp_write_only", "run", "--threads=16", "--time=60"), preload=False
    )
    one = "".join(
        f"INSERT INTO sb.acknowledged VALUES ({n}); SELECT {n};\n" for n in range(1, 200_001)
    )
    (side.dir / "inserts").write_text(one)
    with open(side.dir / "inserts") as source, open(side.dir / "answers", "w") as answers:
        client = side.start(
            server.client("--unbuffered"), preload=False, stdin=source, stdout=answers
        )
        side.until(lambda: (side.dir / "answers").stat().st_size > 2000, client, 30)
        server.kill()
        client.wait()
    load.wait()
    numbers = (side.dir / "answers").read_text().split("\n")[:-1]
    if not side.test(f"{which}: starts after kill -9", server.begin(120)):
        return
    count = server.sql(f"SELECT COUNT(*) FROM sb.acknowledged WHERE n <= {len(numbers)}")
    side.test(
        f"{which}: has what it acknowledged",
        numbers and count == str(len(numbers)),
        f"{count} of {len(numbers)}",
    )
    checked = side.plain(
        [
            "mariadb-check",
            "--no-defaults",
            f"--socket={server.socket}",
            "--user=root",
            "--all-databases",
        ],
        120,
    )
    bad = [line for line in checked.output.splitlines() if not line.endswith("OK")]
    side.test(f"{which}: the tables are whole", checked.status == 0 and not bad, bad[:3])


def ended(process, seconds):
    try:
        process.wait(seconds)
    except Exception:
        process.kill()
        return False
    return True
