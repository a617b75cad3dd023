"""The commands of `klamm pipeline` as a program for spark-submit, in client or cluster mode.

    spark-submit --master k8s://… --deploy-mode cluster --conf … local:///PATH/klamm/cli/pipeline/job.py run LAKE

The JVM, the master and the settings are those of spark-submit. Driver and executors need Python with `klamm[pipeline]`, for example from an
image. Exit codes are those of the command.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    del sys.path[0]  # the folder of this file, where `run` and others are no modules for everybody
    from klamm.cli.start import main

    sys.argv.insert(1, "pipeline")
    main()
