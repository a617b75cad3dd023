package dev.klamm;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Stream;

/** A cluster in a process of its own, which ends with this one: {@code try (var klamm = Klamm.cluster().topic("orders:1").start()) { … }}. */
public final class Klamm extends Cluster implements AutoCloseable {
    private final Process process;
    private final String command;
    private final Path journal;

    private Klamm(JsonNode line, Process process, String command, Path journal) {
        super(line.path("bootstrap_servers").asText(), new Control(line.path("control").asText(), null));
        this.process = process;
        this.command = command;
        this.journal = journal;
    }

    /** How a cluster starts; see {@link Options#start}. */
    public static Options cluster() {
        return new Options();
    }

    /** Options of a cluster. */
    public static final class Options {
        private final List<String> arguments = new ArrayList<>();
        private String command = found();
        private Duration timeout = Duration.ofMinutes(1);
        private boolean keepsJournal;

        private Options() {}

        /** Number of brokers; 3 unless it is set. */
        public Options brokers(int number) {
            return argument("--brokers", String.valueOf(number));
        }

        /** {@code NAME:PARTITIONS:REPLICATION_FACTOR}, with configs behind. */
        public Options topic(String topic) {
            return argument("--topic", topic);
        }

        /** A property of all brokers. */
        public Options config(String name, Object value) {
            return argument("--config", name + "=" + value);
        }

        /** Keep a journal, for {@link Klamm#verdict}. */
        public Options journal() {
            keepsJournal = true;
            return this;
        }

        /** More options of {@code klamm serve}. */
        public Options argument(String... more) {
            arguments.addAll(List.of(more));
            return this;
        }

        /** The program; else {@code KLAMM} of the environment, the one of the venv that {@code VIRTUAL_ENV} names, or that on PATH. */
        public Options command(String program) {
            command = program;
            return this;
        }

        /** How long the start may take. */
        public Options timeout(Duration duration) {
            timeout = duration;
            return this;
        }

        /** Start a cluster and return when it is ready. Throws ControlFailed with the line that says why it cannot start. */
        public Klamm start() {
            Path journal = null;
            Process process = null;
            try {
                journal = keepsJournal ? Files.createTempDirectory("klamm-") : null;
                Path errors = Files.createTempFile("klamm-", ".log");
                List<String> whole = new ArrayList<>(List.of(
                    command, "serve", "--port", "0", "--json", "--stop-with-stdin", "--control-port", "0", "--log-level", "error"));
                whole.addAll(arguments);
                if (journal != null) {
                    whole.addAll(List.of("--journal", journal.toString()));
                }
                try {
                    process = new ProcessBuilder(whole).redirectError(errors.toFile()).start();
                    JsonNode line = firstLine(process, errors);
                    return new Klamm(line, process, command, journal);
                } finally {
                    Files.delete(errors);
                }
            } catch (IOException | ControlFailed failure) {
                if (process != null) {
                    process.destroyForcibly().onExit().join(); // it writes no more to the journal
                }
                delete(journal);
                throw failure instanceof ControlFailed said ? said : new ControlFailed("cannot start klamm: " + failure.getMessage());
            }
        }

        private JsonNode firstLine(Process process, Path errors) throws IOException {
            BufferedReader stdout = process.inputReader();
            var reading = new CompletableFuture<String>();
            var reader = new Thread(() -> {
                try (stdout) {
                    reading.complete(stdout.readLine());
                    stdout.transferTo(Writer.nullWriter()); // a full pipe would stop it
                } catch (IOException gone) {
                    reading.complete(null);
                }
            }, "klamm-stdout");
            reader.setDaemon(true);
            reader.start();
            try {
                String line = reading.get(timeout.toMillis(), TimeUnit.MILLISECONDS);
                if (line == null) {
                    String said = Files.readString(errors).strip();
                    throw new ControlFailed("klamm: " + (said.isEmpty() ? command + " has ended without a word" : said));
                }
                JsonNode ready = Control.JSON.readTree(line);
                if (ready.has("error")) {
                    throw new ControlFailed("klamm: " + ready.get("error").asText());
                }
                return ready;
            } catch (TimeoutException late) {
                throw new ControlFailed("klamm is not ready within " + timeout.toSeconds() + " s. " + Files.readString(errors).strip());
            } catch (ExecutionException failure) {
                throw new ControlFailed("klamm: " + failure);
            } catch (InterruptedException interrupted) {
                throw ControlFailed.interrupted("the start of klamm");
            }
        }

        private static String found() {
            Map<String, String> environment = System.getenv();
            String venv = environment.get("VIRTUAL_ENV");
            return environment.getOrDefault("KLAMM", venv == null ? "klamm" : venv + File.separator + "bin" + File.separator + "klamm");
        }
    }

    /** What the rules say of a journal. {@code details} is the JSON object of {@code klamm pipeline check --quick --json}. */
    public record Verdict(boolean isObeyed, JsonNode details) {
        static Verdict of(int code, String said, String errors) throws IOException {
            if (code != 0 && code != 3) {
                throw new ControlFailed(errors.strip());
            }
            return new Verdict(code == 0, Control.JSON.readTree(said));
        }
    }

    /** What the rules say of all frames up to now. Klamm needs its extra {@code quick}. */
    public Verdict verdict() {
        if (journal == null) {
            throw new IllegalStateException("start the cluster with journal() to have verdicts");
        }
        try {
            Path errors = Files.createTempFile("klamm-", ".log");
            try {
                Process check = new ProcessBuilder(command, "pipeline", "check", "--quick", "--json", journal.toString())
                    .redirectError(errors.toFile()).start();
                String said = new String(check.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
                return Verdict.of(check.waitFor(), said, Files.readString(errors));
            } finally {
                Files.delete(errors);
            }
        } catch (IOException failure) {
            throw new ControlFailed("klamm pipeline check: " + failure.getMessage());
        } catch (InterruptedException interrupted) {
            throw ControlFailed.interrupted("klamm pipeline check");
        }
    }

    /** Shut the brokers down in order. */
    @Override
    public void close() {
        try {
            process.getOutputStream().close();
            if (!process.waitFor(30, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (IOException gone) {
            process.destroyForcibly();
        } catch (InterruptedException interrupted) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
        delete(journal);
    }

    private static void delete(Path folder) {
        if (folder == null) {
            return;
        }
        try (Stream<Path> files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        } catch (IOException | UncheckedIOException left) {
            // a temporary folder: the system removes it
        }
    }
}
