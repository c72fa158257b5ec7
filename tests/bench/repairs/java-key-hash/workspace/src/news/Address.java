package news;

/** An e-mail address; the case of letters does not matter. */
public final class Address implements Comparable<Address> {
    private final String text;

    public Address(String text) {
        if (text.indexOf('@') < 1) {
            throw new IllegalArgumentException("not an address: " + text);
        }
        this.text = text;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Address that && text.equalsIgnoreCase(that.text);
    }

    @Override
    public int hashCode() {
        return text.hashCode();
    }

    @Override
    public int compareTo(Address other) {
        return text.compareTo(other.text);
    }

    @Override
    public String toString() {
        return text;
    }
}
