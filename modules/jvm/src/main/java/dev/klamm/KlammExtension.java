package dev.klamm;

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
 * After each test the cluster is reset. A test that fails prints what clients requested. Tests may have a parameter of type {@link Klamm}.
 */
public final class KlammExtension implements BeforeAllCallback, BeforeEachCallback, AfterEachCallback, AfterAllCallback, ParameterResolver {
    private final Klamm.Options options;
    private Klamm cluster;
    private String owner;
    private long before;

    private KlammExtension(Klamm.Options options) {
        this.options = options;
    }

    /** An extension whose cluster starts with these options. */
    public static KlammExtension of(Klamm.Options options) {
        return new KlammExtension(options);
    }

    /** The cluster. */
    public Klamm cluster() {
        if (cluster == null) {
            throw new IllegalStateException("the field of KlammExtension must be static");
        }
        return cluster;
    }

    @Override
    public void beforeAll(ExtensionContext context) {
        if (cluster == null) { // classes with @Nested use the cluster of the class around them
            cluster = options.start();
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
                failure -> context.publishReportEntry("requests of clients", "\n" + cluster.transcript(before)));
        } finally {
            cluster.reset();
        }
    }

    @Override
    public void afterAll(ExtensionContext context) {
        if (cluster != null && owner.equals(context.getUniqueId())) {
            cluster.close();
            cluster = null;
        }
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == Klamm.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        return cluster();
    }
}
