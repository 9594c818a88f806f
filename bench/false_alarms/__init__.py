"""The parts of bench/false_alarms.py: the operator database, whole models, training as it is done."""
