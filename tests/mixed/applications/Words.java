// Kafka Streams, exactly once: java -cp JARS Words.java BOOTSTRAP FOLDER LINES
// Two instances count the words of the first half of the lines; one of them stops and a third one starts. The second half follows when
// FOLDER/go exists. Prints what committed records and the stores say, and what the application made of internal topics.

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.IntFunction;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;

public class Words {
    static final String[] WORDS = {"red", "green", "blue", "yellow", "black", "white", "grey"};
    static final int PARTITIONS = 3;
    static String bootstrap, folder;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        folder = arguments[1];
        int lines = Integer.parseInt(arguments[2]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            List<NewTopic> topics = new ArrayList<>();
            for (String name : List.of("lines", "names", "counts", "named")) topics.add(new NewTopic(name, PARTITIONS, (short) 3));
            admin.createTopics(topics).all().get();
            produce("names", 0, WORDS.length, number -> new String[] {WORDS[number], WORDS[number].toUpperCase()});
            KafkaStreams first = instance(1), second = instance(2);
            produce("lines", 0, lines / 2, Words::line);
            read("counts", new LongDeserializer(), 1);
            second.close(Duration.ofSeconds(20));
            KafkaStreams third = instance(3);
            System.out.println("* half");
            while (!Files.exists(Path.of(folder, "go"))) Thread.sleep(50);
            produce("lines", lines / 2, lines, Words::line);
            System.out.println("* counts " + read("counts", new LongDeserializer(), 2 * lines));
            System.out.println("* named " + read("named", new StringDeserializer(), 2 * lines));
            System.out.println("* stores " + stored(first, third));
            purged(admin, "words-again-repartition");
            for (KafkaStreams each : List.of(first, third))
                each.close(new KafkaStreams.CloseOptions().leaveGroup(true).timeout(Duration.ofSeconds(20)));
            left(admin, "words");
            for (String topic : new TreeSet<>(admin.listTopics().names().get()))
                if (topic.startsWith("words-")) System.out.println("* " + topic + " " + configs(admin, topic));
        }
        System.exit(0);
    }

    static KafkaStreams instance(int number) {
        Properties settings = new Properties();
        settings.put("application.id", "words");
        settings.put("bootstrap.servers", bootstrap);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("state.dir", folder + "/state" + number);
        settings.put("num.stream.threads", 1);
        settings.put("num.standby.replicas", 1);
        settings.put("replication.factor", 3);
        settings.put("commit.interval.ms", 100);
        settings.put("statestore.cache.max.bytes", 0);
        settings.put("repartition.purge.interval.ms", 500);
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("consumer.session.timeout.ms", 10000);
        settings.put("consumer.heartbeat.interval.ms", 500);
        settings.put("consumer.metadata.max.age.ms", 1000);
        if (number == 1) settings.put("consumer.group.instance.id", "static");
        KafkaStreams made = new KafkaStreams(topology().build(settings), settings);
        made.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        made.start();
        return made;
    }

    static StreamsBuilder topology() {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream("lines");
        GlobalKTable<String, String> names = builder.globalTable("names");
        KStream<String, String> words = lines.flatMapValues(line -> Arrays.asList(line.split(" "))).selectKey((key, word) -> word);
        words.groupByKey(Grouped.with("words", Serdes.String(), Serdes.String())).count(Materialized.as("counts")).toStream()
            .to("counts", Produced.with(Serdes.String(), Serdes.Long()));
        words.repartition(Repartitioned.<String, String>as("again").withNumberOfPartitions(PARTITIONS))
            .join(names, (key, word) -> key, (word, name) -> name).to("named");
        return builder;
    }

    static String[] line(int number) {
        return new String[] {"k" + number % 11, WORDS[number % 7] + " " + WORDS[(int) ((long) number * number % 7)]};
    }

    static void produce(String topic, int from, int to, IntFunction<String[]> record) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = from; number < to; number++) {
                String[] made = record.apply(number);
                producer.send(new ProducerRecord<>(topic, made[0], made[1]));
            }
        }
    }

    /** The last value of each key, after at least this many committed records, and how many there were. */
    static String read(String topic, Deserializer<?> values, int wanted) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("isolation.level", "read_committed");
        Map<String, Object> last = new TreeMap<>();
        int count = 0;
        try (KafkaConsumer<String, ?> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), values)) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int index = 0; index < PARTITIONS; index++) partitions.add(new TopicPartition(topic, index));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            for (boolean empty = false; count < wanted || !empty; ) {
                empty = true;
                for (ConsumerRecord<String, ?> record : consumer.poll(Duration.ofMillis(500))) {
                    empty = false;
                    count++;
                    last.put(record.key(), record.value());
                }
            }
        }
        return last + " of " + count;
    }

    static Map<String, Long> stored(KafkaStreams... instances) {
        Map<String, Long> found = new TreeMap<>();
        for (KafkaStreams instance : instances) {
            var store = instance.store(StoreQueryParameters.fromNameAndType("counts", QueryableStoreTypes.<String, Long>keyValueStore()));
            try (KeyValueIterator<String, Long> all = store.all()) {
                while (all.hasNext()) {
                    KeyValue<String, Long> next = all.next();
                    found.put(next.key, next.value);
                }
            }
        }
        return found;
    }

    /** Wait until records that were read are deleted from a repartition topic. */
    static void purged(Admin admin, String topic) throws Exception {
        Map<TopicPartition, OffsetSpec> partitions = new HashMap<>();
        for (int index = 0; index < PARTITIONS; index++) partitions.put(new TopicPartition(topic, index), OffsetSpec.earliest());
        while (admin.listOffsets(partitions).all().get().values().stream().noneMatch(start -> start.offset() > 0)) Thread.sleep(100);
        System.out.println("* purged");
    }

    /** Wait until a group has no members. */
    static void left(Admin admin, String group) throws Exception {
        while (!admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().isEmpty()) Thread.sleep(100);
        System.out.println("* left");
    }

    static TreeSet<String> configs(Admin admin, String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        TreeSet<String> found = new TreeSet<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries())
            if (entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) found.add(entry.name() + "=" + entry.value());
        return found;
    }
}
