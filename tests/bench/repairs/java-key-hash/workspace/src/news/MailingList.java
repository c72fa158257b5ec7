package news;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;

/** Who gets a newsletter. */
public final class MailingList {
    private final Set<Address> subscribers = new HashSet<>();
    private final Set<Address> blocked = new TreeSet<>();

    /** False where the address is on the list already, or blocked. */
    public boolean subscribe(Address address) {
        return !blocked.contains(address) && subscribers.add(address);
    }

    /** False where the address is not on the list. */
    public boolean unsubscribe(Address address) {
        return subscribers.remove(address);
    }

    /** Takes an address off the list for good. */
    public void block(Address address) {
        subscribers.remove(address);
        blocked.add(address);
    }

    /** Every address that gets a letter, in order. */
    public List<Address> recipients() {
        List<Address> sorted = new ArrayList<>(subscribers);
        sorted.sort(null);
        return sorted;
    }
}
