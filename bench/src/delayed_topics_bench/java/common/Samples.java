import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Instant;
import java.util.concurrent.atomic.AtomicInteger;

/** Records what was sent and received, for samples.py to judge. Stored outside of the heap, so that no garbage collection takes longer. */
final class Samples {
    private static final int SENT_BYTES = 24;
    private static final int RECEIVED_BYTES = 24;
    static final long UNKNOWN = -1;

    private final ByteBuffer sent;
    private final ByteBuffer received;
    private final AtomicInteger receivedCount = new AtomicInteger();
    private final AtomicInteger ackedCount = new AtomicInteger();

    Samples(int mostSent, int mostReceived) {
        sent = ByteBuffer.allocateDirect(Math.multiplyExact(mostSent, SENT_BYTES)).order(ByteOrder.LITTLE_ENDIAN);
        received = ByteBuffer.allocateDirect(Math.multiplyExact(mostReceived, RECEIVED_BYTES)).order(ByteOrder.LITTLE_ENDIAN);
        for (int at = 0; at < sent.capacity(); at += 8) {
            sent.putLong(at, UNKNOWN);
        }
    }

    static long nowUs() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1000;
    }

    void sent(int number, long atUs) {
        sent.putLong(number * SENT_BYTES, atUs);
    }

    /** stampMs: the broker's timestamp of the record, or UNKNOWN. */
    void acked(int number, long atUs, long stampMs) {
        sent.putLong(number * SENT_BYTES + 8, atUs);
        sent.putLong(number * SENT_BYTES + 16, stampMs);
        ackedCount.incrementAndGet();
    }

    void received(int number, int partition, long atUs, long stampMs) {
        int at = receivedCount.getAndIncrement() * RECEIVED_BYTES;
        received.putInt(at, number);
        received.putInt(at + 4, partition);
        received.putLong(at + 8, atUs);
        received.putLong(at + 16, stampMs);
    }

    int receivedCount() {
        return receivedCount.get();
    }

    int ackedCount() {
        return ackedCount.get();
    }

    /**
     * Returns when everything that was acknowledged has been received, when nothing has come for `idle-seconds`, or after
     * `patience-seconds`. Returns false in the last case.
     */
    boolean awaitAll(Options options) throws InterruptedException {
        long end = System.nanoTime() + options.number("patience-seconds") * 1_000_000_000L;
        long idle = options.number("idle-seconds") * 1_000_000_000L;
        long seenAt = System.nanoTime();
        int seen = -1;
        while (receivedCount() < ackedCount() && System.nanoTime() < end && System.nanoTime() - seenAt < idle) {
            if (receivedCount() != seen) {
                seen = receivedCount();
                seenAt = System.nanoTime();
            }
            Thread.sleep(50);
        }
        Thread.sleep(500); // for records that come a second time
        return System.nanoTime() < end;
    }

    void write(Path directory) throws IOException {
        Files.createDirectories(directory);
        write(directory.resolve("sent.bin"), sent, sent.capacity());
        write(directory.resolve("received.bin"), received, receivedCount() * RECEIVED_BYTES);
    }

    private static void write(Path file, ByteBuffer buffer, int bytes) throws IOException {
        try (FileChannel channel = FileChannel.open(
                file, StandardOpenOption.CREATE, StandardOpenOption.WRITE, StandardOpenOption.TRUNCATE_EXISTING)) {
            ByteBuffer view = buffer.duplicate().position(0).limit(bytes);
            while (view.hasRemaining()) {
                channel.write(view);
            }
        }
    }
}
