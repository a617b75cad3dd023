package dev.klamm;

import java.util.function.Supplier;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * A cluster for the tests of a class: {@code @RegisterExtension static final KlammExtension klamm = KlammExtension.of(Klamm.cluster())}.
 *
 * After each test the cluster is reset. A test that fails says what clients requested. Tests may have a parameter of type {@link Klamm} or
 * {@link Cluster}.
 */
public final class KlammExtension implements BeforeAllCallback, BeforeEachCallback, AfterEachCallback, AfterAllCallback, ParameterResolver {
    private final Supplier<? extends Cluster> start;
    private Cluster cluster;
    private String owner;
    private long before;

    private KlammExtension(Supplier<? extends Cluster> start) {
        this.start = start;
    }

    /** An extension whose cluster starts with these options. */
    public static KlammExtension of(Klamm.Options options) {
        return of(options::start);
    }

    /** An extension that gets its cluster here, such as {@code container::cluster}. It is closed at the end if it can be. */
    public static KlammExtension of(Supplier<? extends Cluster> start) {
        return new KlammExtension(start);
    }

    /** The cluster. */
    public Cluster cluster() {
        if (cluster == null) {
            throw new IllegalStateException("the field of KlammExtension must be static");
        }
        return cluster;
    }

    @Override
    public void beforeAll(ExtensionContext context) {
        if (cluster == null) { // classes with @Nested use the cluster of the class around them
            cluster = start.get();
            owner = context.getUniqueId();
        }
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        before = cluster().lastRequest();
    }

    @Override
    public void afterEach(ExtensionContext context) {
        try {
            context.getExecutionException().ifPresent(
                failure -> System.err.println(context.getDisplayName() + " failed; requests of clients:\n" + cluster.transcript(before)));
        } finally {
            cluster.reset();
        }
    }

    @Override
    public void afterAll(ExtensionContext context) throws Exception {
        if (cluster != null && owner.equals(context.getUniqueId())) {
            if (cluster instanceof AutoCloseable started) {
                started.close();
            }
            cluster = null;
        }
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        Class<?> type = parameter.getParameter().getType();
        return Cluster.class.isAssignableFrom(type) && type.isInstance(cluster());
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        return cluster();
    }
}
