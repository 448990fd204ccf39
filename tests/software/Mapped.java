/* A mapped buffer of the JVM: records, then the number of records, each forced before the next. */
import java.io.IOException;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

public final class Mapped {
    private static final int RECORDS = 4;
    private static final int LEN = 512;
    private static final int PAGE = 4096;

    public static void main(String[] arguments) throws IOException {
        boolean isRun = arguments[0].equals("run");
        try (FileChannel channel = FileChannel.open(Path.of(arguments[1]),
                StandardOpenOption.READ, StandardOpenOption.WRITE, StandardOpenOption.CREATE)) {
            MappedByteBuffer count = channel.map(FileChannel.MapMode.READ_WRITE, 0, PAGE);
            MappedByteBuffer records = channel.map(FileChannel.MapMode.READ_WRITE, PAGE, PAGE);
            int known = count.getInt(0);
            for (int number = 1; number <= (isRun ? RECORDS : known); number++) {
                for (int at = (number - 1) * LEN; at < number * LEN; at++) {
                    if (isRun) {
                        records.put(at, (byte) ('a' + number));
                    } else if (records.get(at) != (byte) ('a' + number)) {
                        System.err.println("record " + number + " is damaged");
                        System.exit(1);
                    }
                }
                if (isRun) {
                    records.force();
                    count.putInt(0, number);
                    count.force();
                }
            }
        }
    }
}
