// Operators that deliver the values of several publishers in the order in which they come.

/// What the publishers of this family have in common: they deliver what the first of them does.
public protocol Merging<Output, Failure>: Publisher {
  /// The first.
  associatedtype A: Publisher
  /// The values of all.
  associatedtype Output = A.Output
  /// The failures of all.
  associatedtype Failure = A.Failure
}

extension Publishers {
  /// Delivers the values of two publishers in the order in which they come.
  public struct Merge<A: Publisher, B: Publisher<A.Output, A.Failure>>: Merging {
    /// The first.
    public let a: A
    /// The second.
    public let b: B

    /// `a.merge(with: b)`
    public init(_ a: A, _ b: B) { (self.a, self.b) = (a, b) }

    /// Attaches the subscriber to all.
    @inlinable public func receive<S: Subscriber<A.Output, A.Failure>>(subscriber: S) {
      Confluence(subscriber).open().adding(a).adding(b).close()
    }
  }

  /// Delivers the values of three publishers in the order in which they come.
  public struct Merge3<A: Publisher, B: Publisher<A.Output, A.Failure>, C: Publisher<A.Output, A.Failure>>: Merging {
    /// The first.
    public let a: A
    /// The second.
    public let b: B
    /// The third.
    public let c: C

    /// `a.merge(with: b, c)`
    public init(_ a: A, _ b: B, _ c: C) { (self.a, self.b, self.c) = (a, b, c) }

    /// Attaches the subscriber to all.
    @inlinable public func receive<S: Subscriber<A.Output, A.Failure>>(subscriber: S) {
      Confluence(subscriber).open().adding(a).adding(b).adding(c).close()
    }
  }

  /// Delivers the values of four publishers in the order in which they come.
  public struct Merge4<
    A: Publisher, B: Publisher<A.Output, A.Failure>, C: Publisher<A.Output, A.Failure>,
    D: Publisher<A.Output, A.Failure>
  >: Merging {
    /// The first.
    public let a: A
    /// The second.
    public let b: B
    /// The third.
    public let c: C
    /// The fourth.
    public let d: D

    /// `a.merge(with: b, c, d)`
    public init(_ a: A, _ b: B, _ c: C, _ d: D) { (self.a, self.b, self.c, self.d) = (a, b, c, d) }

    /// Attaches the subscriber to all.
    @inlinable public func receive<S: Subscriber<A.Output, A.Failure>>(subscriber: S) {
      Confluence(subscriber).open().adding(a).adding(b).adding(c).adding(d).close()
    }
  }

  /// Delivers the values of five publishers in the order in which they come.
  public struct Merge5<
    A: Publisher, B: Publisher<A.Output, A.Failure>, C: Publisher<A.Output, A.Failure>,
    D: Publisher<A.Output, A.Failure>, E: Publisher<A.Output, A.Failure>
  >: Merging {
    /// The first.
    public let a: A
    /// The second.
    public let b: B
    /// The third.
    public let c: C
    /// The fourth.
    public let d: D
    /// The fifth.
    public let e: E

    /// `a.merge(with: b, c, d, e)`
    public init(_ a: A, _ b: B, _ c: C, _ d: D, _ e: E) { (self.a, self.b, self.c, self.d, self.e) = (a, b, c, d, e) }

    /// Attaches the subscriber to all.
    @inlinable public func receive<S: Subscriber<A.Output, A.Failure>>(subscriber: S) {
      Confluence(subscriber).open().adding(a).adding(b).adding(c).adding(d).adding(e).close()
    }
  }

  /// Delivers the values of six publishers in the order in which they come.
  public struct Merge6<
    A: Publisher, B: Publisher<A.Output, A.Failure>, C: Publisher<A.Output, A.Failure>,
    D: Publisher<A.Output, A.Failure>, E: Publisher<A.Output, A.Failure>, F: Publisher<A.Output, A.Failure>
  >: Merging {
    /// The first.
    public let a: A
    /// The second.
    public let b: B
    /// The third.
    public let c: C
    /// The fourth.
    public let d: D
    /// The fifth.
    public let e: E
    /// The sixth.
    public let f: F

    /// `a.merge(with: b, c, d, e, f)`
    public init(_ a: A, _ b: B, _ c: C, _ d: D, _ e: E, _ f: F) {
      (self.a, self.b, self.c, self.d, self.e, self.f) = (a, b, c, d, e, f)
    }

    /// Attaches the subscriber to all.
    @inlinable public func receive<S: Subscriber<A.Output, A.Failure>>(subscriber: S) {
      Confluence(subscriber).open().adding(a).adding(b).adding(c).adding(d).adding(e).adding(f).close()
    }
  }

  /// Delivers the values of seven publishers in the order in which they come.
  public struct Merge7<
    A: Publisher, B: Publisher<A.Output, A.Failure>, C: Publisher<A.Output, A.Failure>,
    D: Publisher<A.Output, A.Failure>, E: Publisher<A.Output, A.Failure>, F: Publisher<A.Output, A.Failure>,
    G: Publisher<A.Output, A.Failure>
  >: Merging {
    /// The first.
    public let a: A
    /// The second.
    public let b: B
    /// The third.
    public let c: C
    /// The fourth.
    public let d: D
    /// The fifth.
    public let e: E
    /// The sixth.
    public let f: F
    /// The seventh.
    public let g: G

    /// `a.merge(with: b, c, d, e, f, g)`
    public init(_ a: A, _ b: B, _ c: C, _ d: D, _ e: E, _ f: F, _ g: G) {
      (self.a, self.b, self.c, self.d, self.e, self.f, self.g) = (a, b, c, d, e, f, g)
    }

    /// Attaches the subscriber to all.
    @inlinable public func receive<S: Subscriber<A.Output, A.Failure>>(subscriber: S) {
      Confluence(subscriber).open().adding(a).adding(b).adding(c).adding(d).adding(e).adding(f).adding(g).close()
    }
  }

  /// Delivers the values of eight publishers in the order in which they come.
  public struct Merge8<
    A: Publisher, B: Publisher<A.Output, A.Failure>, C: Publisher<A.Output, A.Failure>,
    D: Publisher<A.Output, A.Failure>, E: Publisher<A.Output, A.Failure>, F: Publisher<A.Output, A.Failure>,
    G: Publisher<A.Output, A.Failure>, H: Publisher<A.Output, A.Failure>
  >: Merging {
    /// The first.
    public let a: A
    /// The second.
    public let b: B
    /// The third.
    public let c: C
    /// The fourth.
    public let d: D
    /// The fifth.
    public let e: E
    /// The sixth.
    public let f: F
    /// The seventh.
    public let g: G
    /// The eighth.
    public let h: H

    /// `a.merge(with: b, c, d, e, f, g, h)`
    public init(_ a: A, _ b: B, _ c: C, _ d: D, _ e: E, _ f: F, _ g: G, _ h: H) {
      (self.a, self.b, self.c, self.d, self.e, self.f, self.g, self.h) = (a, b, c, d, e, f, g, h)
    }

    /// Attaches the subscriber to all.
    @inlinable public func receive<S: Subscriber<A.Output, A.Failure>>(subscriber: S) {
      Confluence(subscriber).open().adding(a).adding(b).adding(c).adding(d).adding(e).adding(f).adding(g).adding(h)
        .close()
    }
  }

  /// Delivers the values of any number of publishers of one type in the order in which they come.
  public struct MergeMany<Upstream: Publisher>: Publisher {
    /// The values of all.
    public typealias Output = Upstream.Output
    /// The failures of all.
    public typealias Failure = Upstream.Failure
    /// The publishers. With none, the end comes at once.
    public let publishers: [Upstream]

    /// These publishers.
    public init(_ upstream: Upstream...) { publishers = upstream }

    /// These publishers.
    public init<S: Swift.Sequence<Upstream>>(_ upstream: S) { publishers = Array(upstream) }

    /// One more.
    public func merge(with other: Upstream) -> MergeMany { MergeMany(publishers + [other]) }

    /// Attaches the subscriber to all.
    @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      publishers.reduce(Confluence(subscriber).open()) { $0.adding($1) }.close()
    }
  }
}

extension Confluence {
  /// Gives the subscriber its subscription. From then to `close` there is one more to end than there are publishers.
  @inlinable func open() -> Confluence {
    enter()
    begin()
    return self
  }

  /// Attaches to a publisher.
  @inlinable func adding<P: Publisher<Down.Input, Down.Failure>>(_ publisher: P) -> Confluence {
    add(publisher)
    return self
  }

  /// There will be no more.
  @inlinable func close() { finishOne() }
}

extension Publisher {
  /// Delivers the values of both in the order in which they come, until both have finished or one fails. While demand is
  /// counted, each is asked for one value ahead.
  public func merge<B: Publisher<Output, Failure>>(with other: B) -> Publishers.Merge<Self, B> {
    Publishers.Merge(self, other)
  }

  /// Delivers the values of both in the order in which they come; while demand is counted, one ahead of each.
  public func merge(with other: Self) -> Publishers.MergeMany<Self> { Publishers.MergeMany([self, other]) }

  /// Delivers the values of all three in the order in which they come; while demand is counted, one ahead of each.
  public func merge<B: Publisher<Output, Failure>, C: Publisher<Output, Failure>>(
    with b: B, _ c: C
  ) -> Publishers.Merge3<Self, B, C> {
    Publishers.Merge3(self, b, c)
  }

  /// Delivers the values of all four in the order in which they come; while demand is counted, one ahead of each.
  public func merge<B: Publisher<Output, Failure>, C: Publisher<Output, Failure>, D: Publisher<Output, Failure>>(
    with b: B, _ c: C, _ d: D
  ) -> Publishers.Merge4<Self, B, C, D> {
    Publishers.Merge4(self, b, c, d)
  }

  /// Delivers the values of all five in the order in which they come; while demand is counted, one ahead of each.
  public func merge<
    B: Publisher<Output, Failure>, C: Publisher<Output, Failure>, D: Publisher<Output, Failure>,
    E: Publisher<Output, Failure>
  >(with b: B, _ c: C, _ d: D, _ e: E) -> Publishers.Merge5<Self, B, C, D, E> {
    Publishers.Merge5(self, b, c, d, e)
  }

  /// Delivers the values of all six in the order in which they come; while demand is counted, one ahead of each.
  public func merge<
    B: Publisher<Output, Failure>, C: Publisher<Output, Failure>, D: Publisher<Output, Failure>,
    E: Publisher<Output, Failure>, F: Publisher<Output, Failure>
  >(with b: B, _ c: C, _ d: D, _ e: E, _ f: F) -> Publishers.Merge6<Self, B, C, D, E, F> {
    Publishers.Merge6(self, b, c, d, e, f)
  }

  /// Delivers the values of all seven in the order in which they come; while demand is counted, one ahead of each.
  public func merge<
    B: Publisher<Output, Failure>, C: Publisher<Output, Failure>, D: Publisher<Output, Failure>,
    E: Publisher<Output, Failure>, F: Publisher<Output, Failure>, G: Publisher<Output, Failure>
  >(with b: B, _ c: C, _ d: D, _ e: E, _ f: F, _ g: G) -> Publishers.Merge7<Self, B, C, D, E, F, G> {
    Publishers.Merge7(self, b, c, d, e, f, g)
  }

  /// Delivers the values of all eight in the order in which they come; while demand is counted, one ahead of each.
  public func merge<
    B: Publisher<Output, Failure>, C: Publisher<Output, Failure>, D: Publisher<Output, Failure>,
    E: Publisher<Output, Failure>, F: Publisher<Output, Failure>, G: Publisher<Output, Failure>,
    H: Publisher<Output, Failure>
  >(with b: B, _ c: C, _ d: D, _ e: E, _ f: F, _ g: G, _ h: H) -> Publishers.Merge8<Self, B, C, D, E, F, G, H> {
    Publishers.Merge8(self, b, c, d, e, f, g, h)
  }
}
