package dev.klamm;

/** The control API refused a request, a wait was over, or nothing answered. The message is one line. */
public final class ControlFailed extends RuntimeException {
    ControlFailed(String line) {
        super(line);
    }

    static ControlFailed interrupted(String what) {
        Thread.currentThread().interrupt();
        return new ControlFailed("interrupted: " + what);
    }
}
