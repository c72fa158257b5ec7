import java.util.ArrayList;
import java.util.List;
import jobs.Job;
import jobs.Runner;
import jobs.Schedule;

public final class JobsTest {
    public static void main(String[] arguments) {
        Schedule schedule = new Schedule();
        List<String> done = new ArrayList<>();
        Runner runner = new Runner(schedule, done::add);
        schedule.add("second", 200);
        schedule.add("first", 100);
        Job third = schedule.add("third", 300);
        check(runner.tick(250) == 2);
        check(done.equals(List.of("first", "second")));
        check(schedule.cancel(third) && !schedule.cancel(third));
        check(schedule.size() == 0);
        System.out.println("ok");
    }

    private static void check(boolean holds) {
        if (!holds) {
            throw new AssertionError();
        }
    }
}
