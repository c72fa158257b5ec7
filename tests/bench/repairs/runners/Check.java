import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Objects;

/** What a hidden test in Java is made of: a Check, its test(…) and same(…), and finish(). */
public final class Check {
    /** A test: it fails by throwing. */
    public interface Body {
        void run() throws Exception;
    }

    private final PrintStream out = System.out;
    private final String word;
    private int passed;
    private int total;

    public Check() throws Exception {
        word = new BufferedReader(new InputStreamReader(System.in)).readLine().trim();
    }

    public void test(String name, Body body) {
        total++;
        try {
            body.run();
            passed++;
        } catch (Throwable fault) {
            out.println(name + " failed: " + fault);
        }
    }

    public static void same(Object wanted, Object got) {
        if (!Objects.equals(wanted, got)) {
            throw new AssertionError("wanted " + wanted + ", got " + got);
        }
    }

    public void finish() {
        out.println("\n" + word + " " + passed + " " + total);
        out.flush();
        Runtime.getRuntime().halt(0);
    }
}
