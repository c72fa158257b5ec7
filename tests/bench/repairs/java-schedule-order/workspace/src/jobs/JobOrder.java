package jobs;

import java.util.Comparator;

/** The order in which jobs are run. */
final class JobOrder implements Comparator<Job> {
    @Override
    public int compare(Job a, Job b) {
        return (int) (a.time() - b.time());
    }
}
