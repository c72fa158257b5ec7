package news;

import java.util.ArrayList;
import java.util.List;

/** One newsletter on its way: lines "LANGUAGE ADDRESS". */
public final class Mailing {
    public static List<String> envelopes(MailingList list, Preferences preferences) {
        List<String> lines = new ArrayList<>();
        for (Address address : list.recipients()) {
            lines.add(preferences.language(address) + " " + address);
        }
        return lines;
    }

    private Mailing() {
    }
}
