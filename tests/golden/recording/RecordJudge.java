// Appends, reads and converts record batches with the classes of Kafka's jars: java -cp JARS RecordJudge.java
// One JSON object a line on standard input, one on standard output for each.
//   {op: "assign", version, offset, epoch, now, hex, rules}  what a leader makes of the records of a Produce request
//   {op: "read", hex}                                        the records of all batches
//   {op: "convert", hex, magic, first}                       the records as an old consumer gets them
// What UnifiedLog (Scala) does to whole batches before LogValidator is repeated here: base offset, size, CRC, codec.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.function.Supplier;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.network.TransferableChannel;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ConvertedRecords;
import org.apache.kafka.common.record.LazyDownConversionRecords;
import org.apache.kafka.common.record.LazyDownConversionRecordsSend;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public class RecordJudge {
    static final ObjectMapper MAPPER = new ObjectMapper();
    static final TopicPartition PARTITION = new TopicPartition("t", 0);
    static final int READ_AT_ONCE = 128 * 1024;

    public static void main(String[] arguments) throws Exception {
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            JsonNode order = MAPPER.readTree(line);
            ObjectNode result = MAPPER.createObjectNode();
            try {
                switch (order.get("op").asText()) {
                    case "assign" -> assign(order, result);
                    case "read" -> read(records(order), result.putArray("batches"));
                    default -> convert(order, result);
                }
            } catch (Throwable error) {
                describe(error, result);
            }
            System.out.println(MAPPER.writeValueAsString(result));
            System.out.flush();
        }
    }

    static MemoryRecords records(JsonNode order) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(order.get("hex").asText())));
    }

    static void describe(Throwable error, ObjectNode result) {
        Throwable cause = error instanceof RecordValidationException ? ((RecordValidationException) error).invalidException() : error;
        result.put("error", Errors.forException(cause).name());
        result.put("class", cause.getClass().getSimpleName()).put("text", cause.getMessage());
        if (error instanceof RecordValidationException) {
            result.put("message", cause.getMessage());
            ArrayNode rows = result.putArray("record_errors");
            for (ProduceResponse.RecordError row : ((RecordValidationException) error).recordErrors())
                rows.addArray().add(row.batchIndex).add(row.message);
        }
    }

    static void assign(JsonNode order, ObjectNode result) throws Exception {
        JsonNode rules = order.get("rules");
        MemoryRecords records = records(order);
        result.put("log_start", false);
        ProduceRequest.validateRecords((short) order.get("version").asInt(), records);
        int largest = rules.get("max_message_bytes").asInt();
        CompressionType source = CompressionType.NONE;
        int valid = 0;
        for (MutableRecordBatch batch : records.batches()) {
            result.put("log_start", false);
            if (batch.magic() >= RecordBatch.MAGIC_VALUE_V2 && batch.baseOffset() != 0) {
                result.put("log_start", true);
                throw new InvalidRecordException("base offset " + batch.baseOffset());
            }
            if (batch.sizeInBytes() > largest)
                throw new RecordTooLargeException("before");
            if (!batch.isValid())
                throw new CorruptRecordException("crc");
            valid += batch.sizeInBytes();
            result.put("log_start", true);
            if (batch.compressionType() != CompressionType.NONE)
                source = batch.compressionType();
            result.put("log_start", false);
        }
        if (valid == 0) {
            result.put("hex", "");
            return;
        }
        ByteBuffer whole = records.buffer().duplicate();
        whole.limit(valid);
        result.put("log_start", true);
        long now = order.get("now").asLong();
        boolean append = rules.get("log_append_time").asBoolean();
        LogValidator validator = new LogValidator(
            MemoryRecords.readableRecords(whole), PARTITION, new FixedTime(now), source, target(rules, source),
            rules.get("is_compacted").asBoolean(), RecordBatch.CURRENT_MAGIC_VALUE,
            append ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
            rules.get("timestamp_before_max_ms").asLong(), rules.get("timestamp_after_max_ms").asLong(), order.get("epoch").asInt(),
            AppendOrigin.CLIENT, MetadataVersion.latestProduction());
        PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(order.get("offset").asLong());
        LogValidator.ValidationResult validated;
        try {
            validated = validator.validateMessagesAndAssignOffsets(offset, new NoMetrics(), BufferSupplier.create());
        } catch (CorruptRecordException error) {
            result.put("log_start", false);
            throw error;
        }
        if (validated.messageSizeMaybeChanged)
            for (RecordBatch batch : validated.validatedRecords.batches())
                if (batch.sizeInBytes() > largest) {
                    result.put("log_start", false);
                    throw new RecordTooLargeException("after");
                }
        byte[] made = new byte[validated.validatedRecords.sizeInBytes()];
        validated.validatedRecords.buffer().duplicate().get(made);
        result.put("hex", HexFormat.of().formatHex(made)).put("max_timestamp", validated.maxTimestampMs).put("next", offset.value);
        try {
            read(validated.validatedRecords, result.putArray("batches"));
        } catch (InvalidRecordException error) {
            // appended, but no consumer can read it: sizes of records in compressed batches are not checked
            result.putNull("batches");
        }
    }

    static Compression target(JsonNode rules, CompressionType source) {
        if (rules.get("compression").isNull())
            return Compression.of(source).build();
        CompressionType type = CompressionType.forId(rules.get("compression").asInt());
        if (rules.get("level").isNull())
            return Compression.of(type).build();
        int level = rules.get("level").asInt();
        return switch (type) {
            case GZIP -> Compression.gzip().level(level).build();
            case LZ4 -> Compression.lz4().level(level).build();
            case ZSTD -> Compression.zstd().level(level).build();
            default -> Compression.of(type).build();
        };
    }

    static void read(MemoryRecords records, ArrayNode batches) {
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            ObjectNode row = batches.addObject();
            row.put("magic", batch.magic()).put("first", batch.magic() < 2 ? 0 : batch.baseOffset()).put("last", batch.lastOffset());
            row.put("codec", batch.compressionType().name).put("time", batch.timestampType().name);
            row.put("max_timestamp", batch.maxTimestamp()).put("producer", batch.producerId()).put("sequence", batch.baseSequence());
            row.put("transactional", batch.isTransactional()).put("epoch", batch.partitionLeaderEpoch());
            ArrayNode list = row.putArray("records");
            for (Record record : batch) {
                ArrayNode fields = list.addArray().add(record.offset()).add(record.timestamp());
                fields.add(hex(record.hasKey() ? record.key() : null)).add(hex(record.hasValue() ? record.value() : null));
                for (Header header : record.headers())
                    fields.add(header.key()).add(hex(header.value() == null ? null : ByteBuffer.wrap(header.value())));
            }
        }
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null)
            return null;
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    static LazyDownConversionRecords lazy(JsonNode order) {
        return new LazyDownConversionRecords(
            PARTITION, records(order), (byte) order.get("magic").asInt(), order.get("first").asLong(), Time.SYSTEM);
    }

    static void convert(JsonNode order, ObjectNode result) throws IOException {
        ArrayNode batches = result.putArray("batches");
        for (Iterator<ConvertedRecords<?>> parts = lazy(order).iterator(READ_AT_ONCE); parts.hasNext();)
            read((MemoryRecords) parts.next().records(), batches);
        Sent sent = new Sent();
        LazyDownConversionRecordsSend send = lazy(order).toSend();
        while (!send.completed())
            send.writeTo(sent);
        result.put("hex", HexFormat.of().formatHex(sent.bytes.toByteArray()));
    }
}

class Sent implements TransferableChannel {
    final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

    public int write(ByteBuffer source) {
        byte[] taken = new byte[source.remaining()];
        source.get(taken);
        bytes.writeBytes(taken);
        return taken.length;
    }

    public long write(ByteBuffer[] sources, int offset, int length) {
        long written = 0;
        for (int at = offset; at < offset + length; at++)
            written += write(sources[at]);
        return written;
    }

    public long write(ByteBuffer[] sources) {
        return write(sources, 0, sources.length);
    }

    public boolean hasPendingWrites() {
        return false;
    }

    public long transferFrom(FileChannel file, long position, long count) {
        throw new UnsupportedOperationException();
    }

    public boolean isOpen() {
        return true;
    }

    public void close() {
    }
}

class FixedTime implements Time {
    private final long now;

    FixedTime(long now) {
        this.now = now;
    }

    public long milliseconds() {
        return now;
    }

    public long nanoseconds() {
        return now * 1_000_000;
    }

    public void sleep(long ms) {
    }

    public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
    }
}

class NoMetrics implements LogValidator.MetricsRecorder {
    public void recordInvalidMagic() {
    }

    public void recordInvalidOffset() {
    }

    public void recordInvalidSequence() {
    }

    public void recordInvalidChecksums() {
    }

    public void recordNoKeyCompactedTopic() {
    }
}
