package jobs;

import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;

/** Jobs that wait for their time. */
public final class Schedule {
    private final TreeSet<Job> jobs = new TreeSet<>(new JobOrder());

    public Job add(String name, long time) {
        return add(name, time, 0);
    }

    public Job add(String name, long time, int priority) {
        Job job = new Job(name, time, priority);
        jobs.add(job);
        return job;
    }

    /** False where the job was cancelled or run before. */
    public boolean cancel(Job job) {
        return jobs.remove(job);
    }

    /** Takes out the jobs whose time has come, in the order in which they are to be run. */
    public List<Job> due(long now) {
        List<Job> found = new ArrayList<>();
        while (!jobs.isEmpty() && jobs.first().time() <= now) {
            found.add(jobs.pollFirst());
        }
        return found;
    }

    public int size() {
        return jobs.size();
    }
}
