// C++: namespaces, one of them anonymous, a template, a constructor and a lambda.

#define HERE(name) __asm__ volatile(".globl " #name "\n" #name ":\n\tnop" ::: "memory")
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define NEVER_INLINE __attribute__((noinline, noclone))

namespace store {

template <typename Key> class Tree {
  public:
    ALWAYS_INLINE explicit Tree(Key first) : key(first) {
        HERE(here_constructor); // at: constructor
    }
    NEVER_INLINE void insert(Key next, long) { // at: insert begins
        key = next;
        HERE(here_insert); // at: insert
    }

  private:
    volatile Key key;
};

namespace {
NEVER_INLINE void hidden(int) {
    HERE(here_hidden); // at: hidden
}
} // namespace

NEVER_INLINE void fill(int first) {
    Tree<int> tree(first); // at: fill
    auto again = [&](int next) __attribute__((noinline)) {
        tree.insert(next, 0); // at: lambda
        HERE(here_lambda); // at: lambda after
    };
    again(first + 1);
    hidden(first);
}

} // namespace store

extern "C" NEVER_INLINE void plain() {
    HERE(here_plain); // at: plain
}

int main() {
    store::fill(1);
    plain();
}
