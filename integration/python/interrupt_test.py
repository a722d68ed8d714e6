"""A SIGINT that comes in a callback is kept until the call of the library returns. No library is needed."""

import signal
import sys
import threading
import unittest
from unittest import mock

sys.path.insert(0, "integration/python")

from cotune import _interrupt
from cotune._interrupt import Keeper, callback


class InterruptTest(unittest.TestCase):
    def setUp(self):
        self.keeper = Keeper()
        self.handled = []
        self.asked = []
        self.keeper.when_kept(lambda: self.asked.append(None))
        before = signal.signal(signal.SIGINT, self.handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)

    def handler(self, number, frame):
        self.handled.append(number)

    def check_handled(self, times):
        self.assertEqual(self.handled, [signal.SIGINT] * times)

    def check_is_put_back(self):
        self.assertEqual(signal.getsignal(signal.SIGINT), self.handler)
        self.assertFalse(self.keeper._is_kept)

    @callback
    def interrupted_call(self, in_callback=lambda: None):
        """A SIGINT comes in the callback that ends the call."""
        self.keeper.begin()
        signal.raise_signal(signal.SIGINT)
        self.keeper.end()
        in_callback()

    def test_it_comes_once_when_the_main_thread_has_left_the_callback(self):
        def in_callback():
            self.keeper.raise_kept()
            self.check_handled(0)

        self.interrupted_call(in_callback)
        self.assertEqual(len(self.asked), 1)
        self.keeper.raise_kept()
        self.check_handled(1)
        self.keeper.raise_kept()
        self.check_handled(1)
        self.check_is_put_back()

    def test_the_signal_that_c_code_sends_again_is_the_kept_one(self):
        self.interrupted_call()
        signal.raise_signal(signal.SIGINT)
        self.keeper.raise_kept()
        self.check_handled(1)
        self.check_is_put_back()

    def test_a_signal_that_is_sent_again_in_another_callback_stays_kept(self):
        @callback
        def other_call():
            signal.raise_signal(signal.SIGINT)
            self.check_handled(0)

        self.interrupted_call()
        other_call()
        self.assertEqual(len(self.asked), 2)
        self.keeper.raise_kept()
        self.check_handled(1)

    def test_the_end_of_a_call_from_python_raises_it(self):
        @callback
        def in_call():
            signal.raise_signal(signal.SIGINT)
            self.check_handled(0)

        self.keeper.begin()
        in_call()
        self.keeper.end()
        self.check_handled(1)
        self.check_is_put_back()

    def test_a_signal_while_the_handler_is_put_back_is_kept(self):
        restore = self.keeper._restore

        @callback
        def call():
            self.keeper.begin()
            with mock.patch.object(self.keeper, "_restore", lambda: (signal.raise_signal(signal.SIGINT), restore())):
                self.keeper.end()

        call()
        self.check_handled(0)
        self.assertEqual(len(self.asked), 1)
        signal.raise_signal(signal.SIGINT)
        self.check_handled(1)
        self.check_is_put_back()

    def test_every_signal_comes(self):
        for number in (1, 2):
            self.interrupted_call()
            self.keeper.raise_kept()
            self.check_handled(number)

    def test_it_keeps_what_a_callback_has_caught_itself(self):
        @callback
        def call():
            self.keeper.raise_later()  # outside of a call that has begun

        call()
        self.check_handled(0)
        self.assertEqual(len(self.asked), 1)
        self.keeper.raise_kept()
        self.check_handled(1)
        self.check_is_put_back()

    def test_another_thread_raises_nothing(self):
        self.interrupted_call()
        thread = threading.Thread(target=self.keeper.raise_kept)
        thread.start()
        thread.join()
        self.check_handled(0)
        self.keeper.raise_kept()
        self.check_handled(1)

    def test_only_a_keyboard_interrupt_ends_a_tune(self):
        @callback
        def ends():
            self.keeper.begin()
            signal.raise_signal(signal.SIGINT)
            return self.keeper.ends_tune

        self.assertFalse(ends())
        self.keeper.end()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.assertTrue(ends())
        with self.assertRaises(KeyboardInterrupt):
            self.keeper.end()
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_callbacks_are_known_by_their_frames(self):
        frames = []

        @callback
        def called():
            def inner():
                frames.append(sys._getframe())

            inner()

        called()
        self.assertTrue(_interrupt._is_in_callback(frames[0]))
        self.assertFalse(_interrupt._is_in_callback(sys._getframe()))


if __name__ == "__main__":
    unittest.main()
