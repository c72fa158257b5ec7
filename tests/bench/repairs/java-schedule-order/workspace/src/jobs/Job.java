package jobs;

/** Something to do at a time, in milliseconds; of the jobs of one moment those of larger priority come first. */
public record Job(String name, long time, int priority) {
}
