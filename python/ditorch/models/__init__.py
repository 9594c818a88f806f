"""Models as lists of operator calls: corpora recorded by tools/record_models.py, their calls at any size, and what runs
them (`ditorch conform run --model`, `ditorch test-device --model`, `ditorch bench --model`)."""
