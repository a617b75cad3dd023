// Writes instances of messages with kafka-clients' own converters and serializers: java -cp JARS Serializers.java COUNT NAME...
// For every version of every named message COUNT instances of awkward values, one JSON object {name, version, json, hex} a line; twice
// the same instance is written once. Which fields a version has is read from the definitions inside kafka-clients' jar. Values depend on
// name and version only, so every run writes the same. What was written is read again by Kafka before it is printed.

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;

public class Serializers {
    static final ObjectMapper MAPPER = new ObjectMapper().configure(JsonParser.Feature.ALLOW_COMMENTS, true);

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        for (String name : Arrays.copyOfRange(arguments, 1, arguments.length)) {
            Kind kind = new Kind(name);
            for (short version = kind.versions.lowest; version <= kind.versions.highest; version++) {
                Values values = new Values(new Random(31L * name.hashCode() + version), version, kind.schema);
                Set<String> seen = new HashSet<>();
                for (int i = 0; i < count; i++) {
                    Message message = kind.read(values.struct(kind.schema.get("fields")), version);
                    String hex = kind.serialize(message, version);
                    if (seen.add(hex)) {
                        ObjectNode line = MAPPER.createObjectNode();
                        line.put("name", name).put("version", version).set("json", kind.write(message, version));
                        System.out.println(MAPPER.writeValueAsString(line.put("hex", hex)));
                    }
                }
            }
        }
    }
}

/** A message: its definition, and Kafka's generated classes for it. */
class Kind {
    final JsonNode schema;
    final Versions versions;
    private final Class<?> data;
    private final Class<?> converter;

    Kind(String name) throws Exception {
        try (InputStream stream = Message.class.getResourceAsStream("/common/message/" + name + ".json")) {
            schema = Serializers.MAPPER.readTree(stream);
        }
        versions = new Versions(schema.get("validVersions").asText());
        data = Class.forName("org.apache.kafka.common.message." + name + "Data");
        converter = Class.forName("org.apache.kafka.common.message." + name + "DataJsonConverter");
    }

    Message read(JsonNode json, short version) throws Exception {
        return (Message) converter.getMethod("read", JsonNode.class, short.class).invoke(null, json, version);
    }

    JsonNode write(Message message, short version) throws Exception {
        return (JsonNode) converter.getMethod("write", data, short.class).invoke(null, message, version);
    }

    String serialize(Message message, short version) throws Exception {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        buffer.flip();
        Object again = data.getConstructor(Readable.class, short.class).newInstance(new ByteBufferAccessor(buffer.duplicate()), version);
        if (buffer.limit() != buffer.capacity() || !message.equals(again)) {
            throw new IllegalStateException("not read as it was written: " + message);
        }
        return HexFormat.of().formatHex(buffer.array());
    }
}

/** A range as definitions name it: none, 3, 3+, 1-4. */
class Versions {
    final short lowest;
    final short highest;

    Versions(String text) {
        String[] ends = text.split("-");
        lowest = text.equals("none") ? Short.MAX_VALUE : Short.parseShort(ends[0].replace("+", ""));
        highest = text.equals("none") ? -1 : text.endsWith("+") ? Short.MAX_VALUE : Short.parseShort(ends[ends.length - 1]);
    }

    static boolean has(JsonNode field, String property, short version) {
        Versions versions = new Versions(field.path(property).asText("none"));
        return versions.lowest <= version && version <= versions.highest;
    }
}

/** Values of fields, often those at which a serializer might stumble. */
class Values {
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final String[] STRINGS = {
        "", "t", "topic", "__consumer_offsets", "a.b_c-d", "rack-1", "127.0.0.1", "::1", "PLAINTEXT", "INTERNAL", "SASL_SSL",
        "\u03ba\u03bb\u03ac\u03bc\u03bc\u03b1", "\ud83e\udd8a", "\"quoted\"\n\u0000\\", "x".repeat(126), "y".repeat(127), "z".repeat(249),
    };
    private static final long[] NUMBERS = {0, 0, -1, 1, 2, 3, 127, 128, 255, 256, 9092, Long.MAX_VALUE, Long.MIN_VALUE};

    private final Random random;
    private final short version;
    private final JsonNode schema;

    Values(Random random, short version, JsonNode schema) {
        this.random = random;
        this.version = version;
        this.schema = schema;
    }

    ObjectNode struct(JsonNode fields) {
        ObjectNode object = NODES.objectNode();
        for (JsonNode field : fields) {
            boolean tagged = Versions.has(field, "taggedVersions", version);
            if (Versions.has(field, "versions", version) && (!tagged || random.nextInt(3) > 0)) {
                object.set(field.get("name").asText().substring(0, 1).toLowerCase() + field.get("name").asText().substring(1), value(field));
            }
        }
        return object;
    }

    private JsonNode value(JsonNode field) {
        String type = field.get("type").asText();
        if (Versions.has(field, "nullableVersions", version) && random.nextInt(4) == 0) {
            return NODES.nullNode();
        }
        if (!type.startsWith("[]")) {
            return one(type, field);
        }
        ArrayNode array = NODES.arrayNode();
        boolean numbers = type.startsWith("[]int");
        int length = numbers && random.nextInt(60) == 0 ? 127 + random.nextInt(3) : random.nextInt(4);
        for (int i = 0; i < length; i++) {
            array.add(one(type.substring(2), field));
        }
        return array;
    }

    private JsonNode one(String type, JsonNode field) {
        switch (type) {
            case "bool": return NODES.booleanNode(random.nextBoolean());
            case "int8": return NODES.numberNode((int) (byte) number());
            case "int16": return NODES.numberNode(field.path("name").asText().endsWith("ErrorCode") && random.nextInt(3) > 0
                ? random.nextInt(128) - 1 : (int) (short) number());
            case "int32": return NODES.numberNode((int) number());
            case "int64": return NODES.numberNode(number());
            case "uint16": return NODES.numberNode((int) number() & 0xffff);
            case "float64": return NODES.numberNode((double) random.nextInt());
            case "bytes": return NODES.binaryNode(new byte[] {1, (byte) random.nextInt()});
            case "records": return NODES.binaryNode(new byte[0]);  // the converter does not write others
            case "uuid": return NODES.textNode(uuid().toString());
            case "string": return NODES.textNode(STRINGS[random.nextInt(STRINGS.length)]);
            default: return struct(field.has("fields") ? field.get("fields") : shared(type));
        }
    }

    private JsonNode shared(String type) {
        for (JsonNode struct : schema.path("commonStructs")) {
            if (struct.get("name").asText().equals(type)) {
                return struct.get("fields");
            }
        }
        throw new IllegalArgumentException(type);
    }

    /** Also the ends of every width: a long's end, cut, is -1 or 0; shifted, the end of the narrower number. */
    private long number() {
        int choice = random.nextInt(20);
        if (choice < NUMBERS.length) {
            return NUMBERS[choice];
        }
        switch (choice) {
            case 13: return Integer.MAX_VALUE;
            case 14: return Integer.MIN_VALUE;
            case 15: return Short.MAX_VALUE;
            case 16: return Short.MIN_VALUE;
            default: return random.nextLong();
        }
    }

    private Uuid uuid() {
        switch (random.nextInt(5)) {
            case 0: return Uuid.ZERO_UUID;
            case 1: return new Uuid(0L, 1L);
            case 2: return new Uuid(-1L, -1L);
            default: return new Uuid(random.nextLong(), random.nextLong());
        }
    }
}
