import java.util.ArrayList;
import java.util.List;
import jobs.Job;
import jobs.Runner;
import jobs.Schedule;

public final class HiddenTest {
    private static List<String> run(Schedule schedule, long now) {
        List<String> done = new ArrayList<>();
        new Runner(schedule, done::add).tick(now);
        return done;
    }

    public static void main(String[] arguments) throws Exception {
        Check check = new Check();
        check.test("one moment", () -> {
            Schedule schedule = new Schedule();
            schedule.add("a", 100);
            schedule.add("b", 100);
            schedule.add("c", 100);
            Check.same(3, schedule.size());
            Check.same(List.of("a", "b", "c"), run(schedule, 100));
        });
        check.test("priority", () -> {
            Schedule schedule = new Schedule();
            schedule.add("a", 100);
            schedule.add("b", 100, 5);
            schedule.add("c", 100, 5);
            schedule.add("d", 99, -1);
            Check.same(List.of("d", "b", "c", "a"), run(schedule, 100));
        });
        check.test("extreme priorities", () -> {
            Schedule schedule = new Schedule();
            schedule.add("low", 1, Integer.MIN_VALUE);
            schedule.add("high", 1, Integer.MAX_VALUE);
            schedule.add("middle", 1, 0);
            Check.same(List.of("high", "middle", "low"), run(schedule, 1));
        });
        check.test("next month", () -> {
            Schedule schedule = new Schedule();
            schedule.add("soon", 1_000);
            schedule.add("later", 1_000 + 30L * 24 * 3600 * 1000);
            Check.same(List.of("soon"), run(schedule, 2_000));
            Check.same(1, schedule.size());
        });
        check.test("the ends of time", () -> {
            Schedule schedule = new Schedule();
            schedule.add("last", Long.MAX_VALUE);
            schedule.add("first", Long.MIN_VALUE);
            schedule.add("now", 0);
            Check.same(List.of("first", "now"), run(schedule, 5));
        });
        check.test("equal names and times", () -> {
            Schedule schedule = new Schedule();
            Job one = schedule.add("a", 100);
            Job two = schedule.add("a", 100);
            Check.same(true, schedule.cancel(one));
            Check.same(false, schedule.cancel(one));
            Check.same(List.of("a"), run(schedule, 100));
            Check.same(false, schedule.cancel(two));
        });
        check.test("cancelled", () -> {
            Schedule schedule = new Schedule();
            schedule.add("a", 100);
            Job b = schedule.add("b", 100, 1);
            Check.same(true, schedule.cancel(b));
            Check.same(List.of("a"), run(schedule, 100));
        });
        check.test("many", () -> {
            Schedule schedule = new Schedule();
            for (int i = 0; i < 1_000; i++) {
                schedule.add("j" + i, i % 7 * 1_000_000_000_000L, i % 3);
            }
            Check.same(1_000, schedule.size());
            Check.same(1_000, run(schedule, Long.MAX_VALUE).size());
        });
        check.test("different times", () -> {
            Schedule schedule = new Schedule();
            schedule.add("b", 2);
            schedule.add("a", 1);
            schedule.add("c", 3);
            Check.same(List.of("a", "b"), run(schedule, 2));
        });
        check.finish();
    }
}
