"""The thread that sends a SIGINT again, which came in a callback, when the main thread has left it. No library is needed."""

import contextlib
import queue
import signal
import sys
import threading
import unittest
from unittest import mock

sys.path.insert(0, "integration/python")

from cotune import _interrupt
from cotune._interrupt import Keeper, callback

WAIT_S = 10.0
_kill, _sleep = signal.pthread_kill, _interrupt.time.sleep


class Answers(queue.SimpleQueue):
    """The answers of the handler, which note when the sender takes one, and when the handler has given one."""

    def __init__(self, events: queue.SimpleQueue, after_answer=lambda: None):
        self._events = events
        self._after_answer = after_answer

    def get(self, *arguments, **keywords):
        self._events.put("takes")
        return super().get(*arguments, **keywords)

    def put(self, answer):
        super().put(answer)
        self._after_answer()


class InterruptTest(unittest.TestCase):
    def setUp(self):
        self.keeper = Keeper()
        self.events = queue.SimpleQueue()  # what the sender does: "looks", "sends" and "takes" an answer
        self.keeper._answers = Answers(self.events)
        self.handled = []
        before = signal.signal(signal.SIGINT, lambda number, frame: self.handled.append(number))
        self.addCleanup(signal.signal, signal.SIGINT, before)
        self.on_look = self.on_send = lambda: None
        for each in (
            mock.patch.object(_interrupt.time, "sleep", self.look),
            mock.patch.object(_interrupt.signal, "pthread_kill", self.send),
        ):
            each.start()
            self.addCleanup(each.stop)

    def look(self, seconds):
        """The sender has found the main thread in a callback."""
        self.events.put("looks")
        self.on_look()
        _sleep(seconds)

    def send(self, thread, number):
        self.events.put("sends")
        self.assertEqual((thread, number), (threading.main_thread().ident, signal.SIGINT))
        self.on_send()
        _kill(thread, number)

    def next_event(self):
        return self.events.get(timeout=WAIT_S)

    def senders(self):
        return [each for each in threading.enumerate() if each.name == "cotune interrupt"]

    def join_sender(self):
        for each in self.senders():
            each.join(WAIT_S)
        self.assertEqual(self.senders(), [], "it ends when the signal was handled")

    def events_left(self):
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self.events.get_nowait())
        return [each for each in found if each != "looks"]

    @callback
    def interrupted_call(self, in_callback=lambda: None):
        """A SIGINT comes in the callback that ends the call."""
        self.keeper.begin()
        signal.raise_signal(signal.SIGINT)
        self.keeper.end()
        in_callback()

    def test_it_sends_once_when_the_main_thread_has_left_the_callback(self):
        def in_callback():
            self.assertEqual([self.next_event() for _ in range(3)], ["looks"] * 3)
            self.assertEqual(self.handled, [])

        self.interrupted_call(in_callback)
        self.join_sender()
        self.assertEqual(self.events_left(), ["takes", "sends", "takes"])
        self.assertEqual(self.handled, [signal.SIGINT])

    def test_it_waits_for_the_handler_and_not_for_an_answer_to_an_earlier_signal(self):
        with mock.patch.object(_interrupt.signal, "pthread_kill", lambda *_: self.events.put("sends")):
            self.interrupted_call()
            found = []
            while len(found) < 3:
                found += [each for each in [self.next_event()] if each != "looks"]
        self.assertEqual(found, ["takes", "sends", "takes"], "the first answer is that to the SIGINT in the callback")
        signal.raise_signal(signal.SIGINT)
        self.join_sender()
        self.assertEqual(self.events_left(), [])
        self.assertEqual(self.handled, [signal.SIGINT])

    def test_it_sends_again_if_the_signal_comes_in_another_callback(self):
        is_there, sends = threading.Event(), []

        def on_send():
            sends.append(None)
            if len(sends) == 1:
                self.assertTrue(is_there.wait(WAIT_S))

        @callback
        def other_call():
            is_there.set()
            # The sender looks again when the handler has answered in this callback.
            self.assertEqual(self.next_event(), "takes")
            self.assertEqual(self.next_event(), "looks")
            self.assertEqual(self.handled, [])

        self.on_send = on_send
        self.interrupted_call()
        while self.next_event() != "sends":
            pass
        other_call()
        self.join_sender()
        self.assertEqual(self.events_left(), ["sends", "takes"])
        self.assertEqual(self.handled, [signal.SIGINT])

    def test_it_sends_nothing_if_another_signal_was_handled_meanwhile(self):
        is_handled = threading.Event()
        self.on_look = lambda: self.assertTrue(is_handled.wait(WAIT_S))
        self.interrupted_call(lambda: self.assertEqual(self.next_event(), "looks"))
        signal.raise_signal(signal.SIGINT)
        self.assertEqual(self.handled, [signal.SIGINT])
        is_handled.set()
        self.join_sender()
        self.assertEqual(self.events_left(), ["takes", "takes"], "it has the answers to both signals")
        self.assertEqual(self.handled, [signal.SIGINT])

    def test_it_sends_nothing_while_the_handler_runs(self):
        senders = []

        def after_answer():
            # The sender has all the time that it takes for another signal.
            while senders:
                senders.pop().join(WAIT_S)

        def on_send():
            self.on_send = lambda: None
            senders.append(threading.current_thread())

        self.keeper._answers = Answers(self.events, after_answer)
        self.on_send = on_send
        self.interrupted_call()
        self.join_sender()
        self.assertEqual(self.events_left(), ["takes", "sends", "takes"])
        self.assertEqual(self.handled, [signal.SIGINT])

    def test_one_thread_sends_what_two_calls_leave(self):
        def in_callback():
            self.keeper.raise_later()
            self.assertEqual(len(self.senders()), 1)

        self.interrupted_call(in_callback)
        self.join_sender()
        self.assertEqual(self.handled, [signal.SIGINT])

    def test_a_later_signal_is_sent_as_well(self):
        for number in (1, 2):
            self.interrupted_call()
            self.join_sender()
            self.assertEqual(self.handled, [signal.SIGINT] * number)

    def test_it_sends_what_a_callback_has_caught_itself(self):
        @callback
        def call():
            self.keeper.raise_later()  # outside of a call of the library

        call()
        self.join_sender()
        self.assertEqual(self.handled, [signal.SIGINT])


if __name__ == "__main__":
    unittest.main()
