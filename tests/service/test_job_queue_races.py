"""Sixteen processes on one store: no job runs twice, and a restarted server loses nothing."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select, text

from lakehand.errors import JobStoreError, LeaseLostError
from lakehand.service.store.database import open_database
from lakehand.service.store.database_schema import ATTEMPTS, JOBS, METADATA
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.records import AttemptEnd
from lakehand.service.store.table_registry import TableRegistry
from support.job_stores import add_pool, add_tables, claim_by, request

PROCESSES, TABLES, SLOTS = 16, 12, 6
#: Longer than a process may be held up, and short enough to wait for in a test.
LEASE = 20
DONE = AttemptEnd(outcome="committed")
#: How long it may take on a busy machine.
_SECONDS = 100
_context = multiprocessing.get_context("fork")


def work(url, number, barrier, running, stop_at):
    """Claim and end jobs; count in shared memory who is at work on each lane of a table."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whatever the parent does at SIGTERM
    database = open_database(url)
    queue, chance = JobQueue(database), random.Random(number)
    barrier.wait()
    while time.time() < stop_at:
        try:
            job = queue.claim(claim_by(f"w{number}", offset=number, lease_seconds=LEASE))
            if job is None:
                time.sleep(0.01)
                continue
            place = (job.table_id - 1) * 2 + (job.lane == "log")
            with running.get_lock():
                running[place] += 1
                assert running[place] == 1, f"two jobs on lane {place}"
            time.sleep(chance.random() * 0.01)
            with running.get_lock():
                running[place] -= 1
            queue.finish(job.id, job.fence, DONE, state="succeeded")
            queue.enqueue(request(job.table_id, job.verb))
        except JobStoreError:
            time.sleep(0.05)  # The server is away for a moment.
        except LeaseLostError:
            os._exit(3)
    database.close()


def run_processes(url, enough, meanwhile=lambda: None):
    """Run until `enough()`, then `meanwhile`, then until there is twice as much."""
    barrier = _context.Barrier(PROCESSES + 1)
    running = _context.Array("i", TABLES * 2)
    stop_at = time.time() + 150
    processes = [
        _context.Process(target=work, args=(url, number, barrier, running, stop_at))
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    try:
        barrier.wait(timeout=120)
        wait_for(lambda: enough(1))
        meanwhile()
        wait_for(lambda: enough(2))
    finally:  # Else they go on with the tables of other tests.
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
    return [process.exitcode for process in processes]


def wait_for(condition):
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"too little was done within {_SECONDS} s")


def prepare(url):
    database = open_database(url)
    add_pool(database, max_running=SLOTS)
    queue = JobQueue(database)
    for table in add_tables(database, TABLES):
        queue.enqueue(request(table, "compact"))
        queue.enqueue(request(table, "checkpoint"))
    database.close()  # Connections must not be shared with processes that are forked.
    return database


def attempts_of(database):
    with database.transaction() as connection:
        rows = connection.execute(select(ATTEMPTS.c.job_id, ATTEMPTS.c.outcome)).all()
    return Counter(row.outcome for row in rows), Counter(row.job_id for row in rows)


@pytest.mark.timeout(240)
def test_no_lane_of_a_table_has_two_jobs(store_url):
    database = prepare(store_url)
    codes = run_processes(store_url, lambda n: attempts_of(database)[0]["committed"] > n * 100)
    outcomes, by_job = attempts_of(database)
    assert set(codes) <= {0, -15}
    assert outcomes["committed"] > PROCESSES
    assert max(by_job.values()) == 1
    database.close()


@pytest.mark.timeout(240)
def test_a_server_that_restarts_loses_no_job(postgresql, emptied_postgresql):
    database = prepare(emptied_postgresql)

    def restart():
        with database.transaction() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND datname = current_database()"
                )
            )
        database.close()
        postgresql.stop("immediate")
        postgresql.start()

    def enough(times):
        # Jobs whose end was not noted by the server are freed, as by a scheduler.
        JobQueue(database).free_dead()
        return attempts_of(database)[0]["committed"] > times * 60

    codes = run_processes(emptied_postgresql, enough, restart)
    assert set(codes) <= {0, -15}
    with database.transaction() as connection:
        kinds = connection.execute(
            select(JOBS.c.table_id, JOBS.c.verb).where(JOBS.c.state.in_(["queued", "running"]))
        ).all()
    # A job that was ended just before its successor was asked for may be missing.
    assert len(set(kinds)) >= TABLES * 2 - PROCESSES
    database.close()


def hang_in_a_transaction(database, job, meanwhile):
    """Lock a job and do nothing for some time, as a worker that is stopped then."""
    with database.transaction() as connection:
        connection.execute(select(JOBS).where(JOBS.c.id == job).with_for_update())
        meanwhile()
        connection.execute(select(JOBS))


def test_a_process_that_hangs_in_a_transaction_does_not_block_the_others(
    emptied_postgresql, monkeypatch
):
    monkeypatch.setattr("lakehand.service.store.database._IDLE_SECONDS", 0.5)
    database, other = open_database(emptied_postgresql), open_database(emptied_postgresql)
    add_pool(database)
    (table,) = add_tables(database, 1)
    queue = JobQueue(database)
    job = queue.enqueue(request(table)).job_id
    with pytest.raises(JobStoreError, match="timeout"):
        hang_in_a_transaction(
            other, job, lambda: wait_for(lambda: queue.claim(claim_by()) is not None)
        )
    database.close()
    other.close()


def test_services_that_begin_at_the_same_moment_share_the_new_tables(emptied_postgresql):
    for _ in range(5):
        first = open_database(emptied_postgresql)
        METADATA.drop_all(first.engine)
        first.close()
        together = threading.Barrier(5)

        def begin(_number, together=together):
            together.wait()
            opened = open_database(emptied_postgresql)
            found = len(TableRegistry(opened).to_look_at())
            opened.close()
            return found

        with ThreadPoolExecutor(5) as pool:
            assert list(pool.map(begin, range(5))) == [0] * 5
