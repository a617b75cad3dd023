package dev.klamm;

import com.github.dockerjava.api.command.InspectContainerResponse;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.images.builder.Transferable;
import org.testcontainers.utility.DockerImageName;

/**
 * A cluster in a container, with Testcontainers: {@code @Container static KlammContainer klamm = new KlammContainer("klamm-serve")}.
 *
 * The ports are free ones. Klamm starts when a file in the container says where clients find the brokers.
 */
public class KlammContainer extends GenericContainer<KlammContainer> {
    private static final int CLIENT_PORT = 9092;
    private static final int CONTROL_PORT = 9090;
    private static final String JOURNAL = "/lake";
    private static final String ADVERTISED = "/tmp/klamm.advertised";
    private static final String START = "until read -r KLAMM_ADVERTISED < " + ADVERTISED + "; do sleep 0.1; done 2>/dev/null; "
        + "export KLAMM_ADVERTISED; exec klamm \"$@\"";

    private final String token = UUID.randomUUID().toString();
    private final List<String> arguments = new ArrayList<>();
    private int brokers = 3;

    /** A container of this image, such as {@code klamm-serve}. */
    public KlammContainer(String image) {
        this(DockerImageName.parse(image));
    }

    /** A container of this image. */
    public KlammContainer(DockerImageName image) {
        super(image);
        withEnv("KLAMM_CONTROL_TOKEN", token);
        withCreateContainerCmdModifier(command -> command.withEntrypoint("sh", "-c", START, "klamm"));
        waitingFor(Wait.forLogMessage(".*\"bootstrap_servers\".*\\n", 1));
    }

    /** Number of brokers; 3 unless it is set. */
    public KlammContainer withBrokers(int number) {
        brokers = number;
        return this;
    }

    /** {@code NAME:PARTITIONS:REPLICATION_FACTOR}, with configs behind. */
    public KlammContainer withTopic(String topic) {
        return withArguments("--topic", topic);
    }

    /** A property of all brokers. */
    public KlammContainer withConfig(String name, Object value) {
        return withArguments("--config", name + "=" + value);
    }

    /** Keep a journal, for {@link #verdict}. The image needs the extras journal and quick for it: docs/containers.md. */
    public KlammContainer withJournal() {
        return withArguments("--journal", JOURNAL);
    }

    /** More options of {@code klamm serve}. */
    public KlammContainer withArguments(String... more) {
        arguments.addAll(List.of(more));
        return this;
    }

    @Override
    protected void configure() {
        super.configure();
        brokerPorts().forEach(this::addExposedPort);
        addExposedPort(CONTROL_PORT);
        List<String> command = new ArrayList<>(List.of(
            "serve", "--json", "--brokers", String.valueOf(brokers), "--control-host", "0.0.0.0", "--control-port", String.valueOf(CONTROL_PORT)));
        command.addAll(arguments);
        withCommand(command.toArray(String[]::new));
    }

    @Override
    protected void containerIsStarting(InspectContainerResponse info) {
        copyFileToContainer(Transferable.of(bootstrapServers() + "\n"), ADVERTISED);
    }

    private IntStream brokerPorts() {
        return IntStream.range(CLIENT_PORT, CLIENT_PORT + brokers);
    }

    /** {@code HOST:PORT} of each broker, separated by commas. */
    public String bootstrapServers() {
        return brokerPorts().mapToObj(port -> getHost() + ":" + getMappedPort(port)).collect(Collectors.joining(","));
    }

    /** What the rules say of all frames up to now. The container needs {@link #withJournal}. */
    public Klamm.Verdict verdict() {
        try {
            ExecResult check = execInContainer("klamm", "pipeline", "check", "--quick", "--json", JOURNAL);
            return Klamm.Verdict.of(check.getExitCode(), check.getStdout(), check.getStderr());
        } catch (IOException failure) {
            throw new ControlFailed("klamm pipeline check: " + failure.getMessage());
        } catch (InterruptedException interrupted) {
            throw ControlFailed.interrupted("klamm pipeline check");
        }
    }

    /** The cluster, to steer it. */
    public Cluster cluster() {
        return new Cluster(bootstrapServers(), new Control("http://" + getHost() + ":" + getMappedPort(CONTROL_PORT), token));
    }
}
