package jobs;

import java.util.function.Consumer;

/** Runs what is due. */
public final class Runner {
    private final Schedule schedule;
    private final Consumer<String> work;

    public Runner(Schedule schedule, Consumer<String> work) {
        this.schedule = schedule;
        this.work = work;
    }

    /** Runs the jobs of this moment; returns how many. */
    public int tick(long now) {
        int count = 0;
        for (Job job : schedule.due(now)) {
            work.accept(job.name());
            count++;
        }
        return count;
    }
}
