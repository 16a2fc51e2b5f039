"""A function in a process of its own, which ends with the status that says how."""

from __future__ import annotations

import os
import sys
import traceback


def started(function, *arguments):
    """The number of the new process; an interrupt ends it with status 130, an error with 1."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        function(*arguments)
        code = 0
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
