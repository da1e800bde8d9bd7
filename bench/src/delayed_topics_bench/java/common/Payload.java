import java.nio.ByteBuffer;
import java.util.SplittableRandom;

/** Values with a number in their first four bytes, and letters that don't compress, like those of Kafka's own perf tool. */
final class Payload {
    private static final int DIFFERENT = 4096; // more than a compressor's window holds

    private final byte[][] letters = new byte[DIFFERENT][];

    Payload(int bytes) {
        SplittableRandom random = new SplittableRandom(7);
        for (int n = 0; n < DIFFERENT; n++) {
            letters[n] = new byte[bytes];
            for (int i = 0; i < bytes; i++) {
                letters[n][i] = (byte) (random.nextInt(26) + 'A');
            }
        }
    }

    byte[] value(int number) {
        byte[] value = letters[number % DIFFERENT].clone();
        ByteBuffer.wrap(value).putInt(number);
        return value;
    }

    static int number(byte[] value) {
        return ByteBuffer.wrap(value).getInt();
    }
}
