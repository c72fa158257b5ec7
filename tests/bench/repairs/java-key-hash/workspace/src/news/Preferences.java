package news;

import java.util.HashMap;
import java.util.Map;

/** What subscribers want: the language of their letters. */
public final class Preferences {
    private final Map<Address, String> languages = new HashMap<>();

    public void setLanguage(Address address, String language) {
        languages.put(address, language);
    }

    public String language(Address address) {
        return languages.getOrDefault(address, "en");
    }

    public static boolean same(Address a, Address b) {
        return a.equals(b);
    }
}
