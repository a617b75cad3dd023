"""What the commands share between them and the shell: parameters, output, logs, signals, failures, exit codes and completion."""
