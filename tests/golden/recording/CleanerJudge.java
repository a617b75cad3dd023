// Compacts batches with the cleaner of Kafka's jars: java -cp JARS CleanerJudge.java
// One JSON object a line on standard input: {hex, start, aborted: [[producer id, first, last, last stable offset]], now, retention,
// producers: {id: [last offset or null, epoch]}}; hex and the transactions that the cleaned index has on standard output for each.
// Keys are taken from offset `start` on.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import kafka.log.CleanedTransactionMetadata;
import kafka.log.Cleaner;
import kafka.log.CleanerStats;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.LastRecord;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetMap;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.TransactionIndex;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

public class CleanerJudge {
    static final ObjectMapper MAPPER = new ObjectMapper();
    static final TopicPartition PARTITION = new TopicPartition("t", 0);
    static final int LARGEST = 1 << 24;

    public static void main(String[] arguments) throws Exception {
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        File folder = Files.createTempDirectory("cleaner").toFile();
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            ObjectNode result = MAPPER.createObjectNode();
            try {
                clean(MAPPER.readTree(line), folder, result);
            } catch (Throwable error) {
                result.put("error", error.toString());
                error.printStackTrace();
            }
            for (File file : folder.listFiles())
                file.delete();
            System.out.println(MAPPER.writeValueAsString(result));
            System.out.flush();
        }
        folder.delete();
    }

    static void clean(JsonNode order, File folder, ObjectNode result) throws Exception {
        OffsetMap map = new SkimpyOffsetMap(1 << 20);
        Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "x", "x", Time.SYSTEM);
        Cleaner cleaner = new Cleaner(0, map, 1 << 20, LARGEST, 0.9, throttler, Time.SYSTEM, partition -> BoxedUnit.UNIT);
        LogConfig config = new LogConfig(Map.of());
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(order.get("hex").asText())));
        long last = -1;
        for (RecordBatch batch : records.batches())
            last = batch.lastOffset();
        LogSegment source = LogSegment.open(folder, 0, config, Time.SYSTEM, 1 << 20, false);
        source.append(last, records);
        LogSegment target = LogSegment.open(folder, 0, config, Time.SYSTEM, false, 1 << 20, false, ".cleaned");

        for (Method method : Cleaner.class.getDeclaredMethods())
            if (method.getName().equals("buildOffsetMapForSegment")) {
                method.setAccessible(true);
                long start = order.get("start").asLong();
                method.invoke(cleaner, PARTITION, source, map, start, last + 1, LARGEST, transactions(order), new CleanerStats(Time.SYSTEM));
            }
        CleanedTransactionMetadata transactions = transactions(order);
        TransactionIndex index = target.txnIndex();
        transactions.cleanedIndex_$eq(Option.apply(index));
        scala.collection.mutable.HashMap<Object, LastRecord> producers = new scala.collection.mutable.HashMap<>();
        order.get("producers").fields().forEachRemaining(entry -> {
            JsonNode offset = entry.getValue().get(0);
            OptionalLong known = offset.isNull() ? OptionalLong.empty() : OptionalLong.of(offset.asLong());
            producers.put(Long.parseLong(entry.getKey()), new LastRecord(known, (short) entry.getValue().get(1).asInt()));
        });
        cleaner.cleanInto(PARTITION, source.log(), target, map, false, order.get("retention").asLong(), LARGEST, transactions, producers,
            new CleanerStats(Time.SYSTEM), order.get("now").asLong());
        ByteBuffer made = ByteBuffer.allocate(target.log().sizeInBytes());
        if (made.capacity() > 0)
            target.log().readInto(made, 0);
        result.put("hex", HexFormat.of().formatHex(made.array())).put("latest", map.latestOffset());
        ArrayNode rows = result.putArray("aborted");
        for (AbortedTxn entry : index.allAbortedTxns())
            rows.addArray().add(entry.producerId()).add(entry.firstOffset()).add(entry.lastOffset()).add(entry.lastStableOffset());
        source.close();
        target.close();
    }

    static CleanedTransactionMetadata transactions(JsonNode order) {
        List<AbortedTxn> entries = new ArrayList<>();
        for (JsonNode row : order.get("aborted"))
            entries.add(new AbortedTxn(row.get(0).asLong(), row.get(1).asLong(), row.get(2).asLong(), row.get(3).asLong()));
        CleanedTransactionMetadata made = new CleanedTransactionMetadata();
        made.addAbortedTransactions(CollectionConverters.asScala(entries).toList());
        return made;
    }
}
