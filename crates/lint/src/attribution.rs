//! Which frame an event is attributed to: the user's frame that asked for it, or none.

use powerfail_trace::{Frame, Module, StackId, Trace};

use crate::trust::{Standing, Trust};

/// On whose behalf a function of a trusted library acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Business {
    /// It passes its caller's range on and does nothing else: `pmemobj_persist`.
    Callers,
    /// It works on what belongs to the library: `pmemobj_tx_commit`, `pthread_mutex_unlock`.
    Own,
    /// Unknown: the standing of its module decides.
    Unknown,
}

impl Business {
    /// What is known by the name of the function through which a trusted library was entered.
    pub fn of_function(name: &str) -> Self {
        const CALLERS: [&str; 9] = [
            "pmemobj_persist",
            "pmemobj_xpersist",
            "pmemobj_flush",
            "pmemobj_xflush",
            "pmemobj_drain",
            "pmemobj_memcpy",
            "pmemobj_memmove",
            "pmemobj_memset",
            "pmem_",
        ];
        const OWN: [&str; 5] = ["pthread_", "__pthread_", "sem_", "mtx_", "cnd_"];
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        if begins(&CALLERS) {
            Self::Callers
        } else if begins(&OWN) {
            Self::Own
        } else {
            Self::Unknown
        }
    }
}

/// Knows the functions of trusted libraries. This crate finds no symbols itself.
pub trait Symbols {
    /// On whose behalf the function at `frame` acts. Asked only about the outermost frame of a
    /// trusted library, that is, about the function that the user called; the frame's address is a
    /// return address unless `is_site`. See [`Business::of_function`].
    fn business(&mut self, frame: Frame, is_site: bool) -> Business;

    /// On whose behalf the function of another module acts that is called at `caller`, whose address
    /// is a return address. Asked if the frames of a trusted library do not tell: a function that
    /// ends in a jump leaves no frame, and the one that it jumps to may have no name.
    fn business_of_call(&mut self, caller: Frame) -> Business;

    /// The lines of the user's sources at `frame`, innermost first: several if calls are inlined there, none if all of it
    /// comes from headers of the system, or is unknown. Nothing if there are no sources at all: then each frame is a
    /// line of its own.
    fn lines(&mut self, _frame: Frame, _is_site: bool) -> Option<Vec<LineNumber>> {
        None
    }
}

/// A line of the sources. Equal numbers are the same line of the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LineNumber(pub u32);

/// A line of code on a call stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub(crate) node: StackId,
    /// The node is the event itself, not a call.
    is_site: bool,
    /// How many of the lines at the node's address lie inside of this one, by inlined calls.
    pub(crate) inlined: u32,
}

impl Position {
    pub(crate) const fn of(node: StackId, is_site: bool) -> Self {
        Self {
            node,
            is_site,
            inlined: 0,
        }
    }
}

/// What tells lines of code apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CodeKey {
    Line(LineNumber),
    /// Where no line is known.
    Frame(Option<Frame>),
}

/// Knows no function: what opaque libraries do is never reported.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSymbols;

impl Symbols for NoSymbols {
    fn business(&mut self, _: Frame, _: bool) -> Business {
        Business::Unknown
    }

    fn business_of_call(&mut self, _: Frame) -> Business {
        Business::Unknown
    }
}

/// The node of the user's frame that an event is attributed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User(u32);

impl User {
    /// A trusted library's own business.
    pub(crate) const NONE: Self = Self(u32::MAX);
    const NOT_ASKED: Self = Self(u32::MAX - 1);

    pub(crate) fn is_attributed(self) -> bool {
        self != Self::NONE
    }

    pub(crate) fn node(self) -> StackId {
        StackId(self.0)
    }
}

/// The attribution of each call stack, worked out once.
pub(crate) struct Attribution<'t> {
    trace: &'t Trace,
    symbols: &'t mut dyn Symbols,
    standings: Vec<Standing>,
    of_stores: Vec<User>,
    /// Flushes and fences.
    of_orders: Vec<User>,
    /// Modules with persistent data of their own, regardless of trust.
    libraries: Vec<bool>,
    /// Whether a stack has a frame in one of them.
    in_library: Vec<Option<bool>>,
}

impl<'t> Attribution<'t> {
    pub(crate) fn new(trace: &'t Trace, trust: &Trust, symbols: &'t mut dyn Symbols) -> Self {
        let known = Trust::default();
        let is_library = |module: &Module| known.standing(&module.path) == Standing::Opaque;
        let libraries = trace.modules().iter().map(is_library).collect();
        let modules = trace.modules().iter();
        let stacks = trace.stack_count() as usize + 1;
        Self {
            trace,
            symbols,
            standings: modules.map(|module| trust.standing(&module.path)).collect(),
            of_stores: vec![User::NOT_ASKED; stacks],
            of_orders: vec![User::NOT_ASKED; stacks],
            libraries,
            in_library: vec![None; stacks],
        }
    }

    /// The user's frame of a store.
    #[inline]
    pub(crate) fn of_store(&mut self, stack: StackId) -> User {
        match self.of_stores.get(stack.0 as usize) {
            Some(&user) if user != User::NOT_ASKED => user,
            _ => self.ask(stack).0,
        }
    }

    /// The user's frame of a flush or fence.
    #[inline]
    pub(crate) fn of_order(&mut self, stack: StackId) -> User {
        match self.of_orders.get(stack.0 as usize) {
            Some(&user) if user != User::NOT_ASKED => user,
            _ => self.ask(stack).1,
        }
    }

    #[cold]
    fn ask(&mut self, stack: StackId) -> (User, User) {
        let user = self.user_of(stack);
        let site = self.trace.stack_node(stack).map(|node| node.frame);
        let order = match site {
            Some(frame) if self.standing(frame) == Standing::Runtime => User::NONE,
            _ => user,
        };
        let slot = stack.0 as usize;
        if slot < self.of_stores.len() {
            self.of_stores[slot] = user;
            self.of_orders[slot] = order;
        }
        (user, order)
    }

    fn user_of(&mut self, stack: StackId) -> User {
        // Nothing is known about who did it: the user has to hear of it.
        if stack.is_none() {
            return User(StackId::NONE.0);
        }
        let mut nodes = Vec::new();
        let mut frames = Vec::new();
        let mut next = stack;
        while let Some(node) = self.trace.stack_node(next) {
            nodes.push(next);
            frames.push(node.frame);
            if self.standing(node.frame) == Standing::User {
                break;
            }
            next = node.caller;
        }
        let standings = &self.standings;
        let user = attributed_frame(&frames, &|frame| standing(standings, frame), self.symbols);
        user.map_or(User::NONE, |user| User(nodes[user].0))
    }

    fn standing(&self, frame: Frame) -> Standing {
        standing(&self.standings, frame)
    }

    /// Whether a library with persistent data of its own is at work, trusted or not.
    pub(crate) fn is_in_library(&mut self, stack: StackId) -> bool {
        if let Some(Some(answer)) = self.in_library.get(stack.0 as usize) {
            return *answer;
        }
        let mut next = stack;
        let mut answer = false;
        while let Some(node) = self.trace.stack_node(next) {
            if let Frame::Module { module, .. } = node.frame
                && self.libraries.get(module.0 as usize) == Some(&true)
            {
                answer = true;
                break;
            }
            next = node.caller;
        }
        if let Some(place) = self.in_library.get_mut(stack.0 as usize) {
            *place = Some(answer);
        }
        answer
    }

    /// The line of the user's at a position or, where there is none, the next one outside of it.
    pub(crate) fn code_at(&mut self, at: Position) -> (Position, CodeKey) {
        let frame = self.trace.stack_node(at.node).map(|node| node.frame);
        self.users_line(at).unwrap_or((at, CodeKey::Frame(frame)))
    }

    /// The next line of the user's outside of a position: where the function of that one is called.
    pub(crate) fn code_outside(&mut self, at: Position) -> Option<(Position, CodeKey)> {
        let node = self.trace.stack_node(at.node)?;
        let lines = self.symbols.lines(node.frame, at.is_site);
        let inlined = at.inlined + 1;
        if lines.is_some_and(|lines| lines.len() > inlined as usize) {
            return Some(self.code_at(Position { inlined, ..at }));
        }
        self.is_user(node.caller)
            .then(|| self.code_at(Position::of(node.caller, false)))
    }

    fn users_line(&mut self, mut at: Position) -> Option<(Position, CodeKey)> {
        loop {
            let node = self.trace.stack_node(at.node)?;
            let lines = self.symbols.lines(node.frame, at.is_site)?;
            if let Some(line) = lines.get(at.inlined as usize) {
                return Some((at, CodeKey::Line(*line)));
            }
            if !self.is_user(node.caller) {
                return None;
            }
            at = Position::of(node.caller, false);
        }
    }

    /// The call that a node's function is in, if it is known.
    pub(crate) fn caller(&self, node: StackId) -> Option<StackId> {
        let caller = self.trace.stack_node(node)?.caller;
        (!caller.is_none()).then_some(caller)
    }

    /// The calls that a node is in, innermost first.
    pub(crate) fn callers(&self, node: StackId) -> impl Iterator<Item = StackId> {
        std::iter::successors(self.caller(node), |node| self.caller(*node))
    }

    /// The innermost frame of a stack that belongs to the user's code, or the stack itself if none does.
    pub(crate) fn nearest_user(&self, stack: StackId) -> StackId {
        let mut nodes = std::iter::once(stack).chain(self.callers(stack));
        nodes.find(|node| self.is_user(*node)).unwrap_or(stack)
    }

    /// Whether a call is another one, or happens in it.
    pub(crate) fn is_inside(&self, call: StackId, other: StackId) -> bool {
        call == other || self.callers(call).any(|outer| outer == other)
    }

    /// Whether two nodes have the same frame, regardless of the caller.
    pub(crate) fn same_frame(&self, one: StackId, other: StackId) -> bool {
        let frame = |node| self.trace.stack_node(node).map(|node| node.frame);
        one == other || frame(one) == frame(other)
    }

    /// Whether the frame of a node is the user's.
    pub(crate) fn is_user(&self, node: StackId) -> bool {
        let node = self.trace.stack_node(node);
        node.is_some_and(|node| self.standing(node.frame) == Standing::User)
    }
}

fn standing(standings: &[Standing], frame: Frame) -> Standing {
    match frame {
        Frame::Module { module, .. } => standings
            .get(module.0 as usize)
            .map_or(Standing::User, |standing| *standing),
        Frame::Absolute { .. } => Standing::User,
    }
}

/// Which of the frames of a load or store, innermost first, it is attributed to; nothing if it is a trusted
/// library's own business.
pub fn attributed_frame(
    frames: &[Frame],
    standing: &dyn Fn(Frame) -> Standing,
    symbols: &mut dyn Symbols,
) -> Option<usize> {
    let mut outermost_trusted = None;
    let mut outermost_opaque = None;
    let mut numbered = frames.iter().copied().enumerate();
    // A library without a visible caller: only sites were recorded, or a thread of its own.
    let (user, caller) = numbered.find(|(number, frame)| {
        let standing = standing(*frame);
        if standing == Standing::User {
            return true;
        }
        outermost_trusted = Some((*frame, *number == 0));
        if standing == Standing::Opaque {
            outermost_opaque = outermost_trusted;
        }
        false
    })?;
    let Some((frame, is_site)) = outermost_opaque.or(outermost_trusted) else {
        return Some(user);
    };
    let business = match symbols.business(frame, is_site) {
        Business::Unknown => symbols.business_of_call(caller),
        known => known,
    };
    let reported = match business {
        Business::Callers => true,
        Business::Own => false,
        Business::Unknown => outermost_opaque.is_none(),
    };
    reported.then_some(user)
}

#[cfg(test)]
mod tests {
    use super::Business;

    #[test]
    fn functions_are_known_by_their_names() {
        assert_eq!(Business::of_function("pmemobj_persist"), Business::Callers);
        assert_eq!(
            Business::of_function("pmemobj_memcpy_persist"),
            Business::Callers
        );
        assert_eq!(Business::of_function("pthread_mutex_unlock"), Business::Own);
        assert_eq!(
            Business::of_function("pmemobj_tx_commit"),
            Business::Unknown
        );
        assert_eq!(Business::of_function("memcpy"), Business::Unknown);
    }
}
