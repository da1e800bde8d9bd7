import java.util.concurrent.locks.LockSupport;
import java.util.function.IntConsumer;

/** A steady rate. */
final class Pace {
    private Pace() {}

    /** Calls send(0), send(1) … so many times a second; what a pause has held up follows at once. */
    static void keep(int perSecond, int count, IntConsumer send) {
        keep(perSecond, count, send, () -> {});
    }

    /** The same; afterBatch is called after those that were sent at once, a batch each half of a millisecond. */
    static void keep(int perSecond, int count, IntConsumer send, Runnable afterBatch) {
        long began = System.nanoTime();
        int next = 0;
        while (next < count) {
            long turn = Math.min(count, (System.nanoTime() - began) * perSecond / 1_000_000_000L + 1);
            while (next < turn) {
                send.accept(next++);
            }
            afterBatch.run();
            LockSupport.parkNanos(500_000);
        }
    }
}
