"""Serves kernels from this process through a Unix socket, to a command that runs as a child."""
import os
import queue
import shutil
import socket
import tempfile
import threading

from . import protocol


class Server:
    """Listens while it is open. Each connection of the judge's workers has a thread; calls go through one queue
    to the thread that calls pump, that of the test: one call at a time, visible to debuggers, coverage and
    Ctrl-C."""

    def __init__(self, subjects, run=protocol.run):
        self._subjects, self._run = protocol.by_name(subjects), run
        self._calls, self._open, self._streams, self._threads = queue.Queue(), True, [], []
        self._folder = tempfile.mkdtemp(prefix="samestate-")
        self.path = os.path.join(self._folder, "s")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self.path)
        self._socket.listen(64)
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()

    @property
    def spec(self):
        return "socket:" + self.path

    def _accept(self):
        while self._open:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._converse, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _converse(self, connection):
        stream = protocol.Stream(connection.makefile("rb"), connection.makefile("wb"))
        self._streams.append(connection)
        from .subject import about

        try:
            protocol.converse(stream, self._subjects, about, self._queued)
        except (protocol.Error, OSError, ValueError) as error:
            if self._open:
                import sys

                print(f"samestate: {protocol.one_line(error)}", file=sys.stderr)
        finally:
            stream.close()
            connection.close()

    def _queued(self, subjects, request, memory, stream):
        done, box = threading.Event(), []
        self._calls.put((subjects, request, memory, stream, done, box))
        done.wait()
        return box[0]

    def pump(self, child, until=None):
        """Runs calls in this thread until the child has ended, or `until()` is true after a call."""
        while True:
            try:
                subjects, request, memory, stream, done, box = self._calls.get(timeout=0.02)
            except queue.Empty:
                if child.poll() is not None:
                    return
                continue
            answer = {"type": "error", "id": request.get("id"), "reason": "interrupted", "fatal": True}
            try:
                answer = self._run(subjects, request, memory, stream)
            finally:
                box.append(answer)
                done.set()
            if until is not None and until():
                return

    def close(self):
        self._open = False
        # A connection to itself wakes accept; shutting down a listening socket does not do so on every system.
        try:
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(self.path)
        except OSError:
            pass
        self._socket.close()
        for connection in self._streams:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        while True:  # nobody waits for an answer any more
            try:
                *_, request, _, _, done, box = self._calls.get_nowait()
            except queue.Empty:
                break
            box.append({"type": "error", "id": request.get("id"), "reason": "the test has ended"})
            done.set()
        shutil.rmtree(self._folder, ignore_errors=True)
