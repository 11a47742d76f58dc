// Operators that deliver the values of several publishers in the order in which they come.

extension Publishers {
  /// Those whose values and failures are of the same types as those of `P`.
  public typealias Peer<P: Publisher> = Publisher<P.Output, P.Failure>

  /// Delivers the values of some publishers, whose types are `Parts`, in the order in which they come.
  public struct Merging<Parts, Output, Failure: Error>: Publisher {
    @usableFromInline let parts: [AnyPublisher<Output, Failure>]

    @inlinable init(_ parts: AnyPublisher<Output, Failure>...) { self.parts = parts }

    /// Attaches the subscriber to all.
    @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      Confluence(subscriber, "Merge").join(parts)
    }
  }

  /// Delivers the values of two publishers in the order in which they come.
  public typealias Merge<A: Publisher, B: Peer<A>> = Merging<(A, B), A.Output, A.Failure>
  /// Delivers the values of three publishers in the order in which they come.
  public typealias Merge3<A: Publisher, B: Peer<A>, C: Peer<A>> = Merging<(A, B, C), A.Output, A.Failure>
  /// Delivers the values of four publishers in the order in which they come.
  public typealias Merge4<A: Publisher, B: Peer<A>, C: Peer<A>, D: Peer<A>> = Merging<(A, B, C, D), A.Output, A.Failure>
  /// Delivers the values of five publishers in the order in which they come.
  public typealias Merge5<A: Publisher, B: Peer<A>, C: Peer<A>, D: Peer<A>, E: Peer<A>> =
    Merging<(A, B, C, D, E), A.Output, A.Failure>
  /// Delivers the values of six publishers in the order in which they come.
  public typealias Merge6<A: Publisher, B: Peer<A>, C: Peer<A>, D: Peer<A>, E: Peer<A>, F: Peer<A>> =
    Merging<(A, B, C, D, E, F), A.Output, A.Failure>
  /// Delivers the values of seven publishers in the order in which they come.
  public typealias Merge7<A: Publisher, B: Peer<A>, C: Peer<A>, D: Peer<A>, E: Peer<A>, F: Peer<A>, G: Peer<A>> =
    Merging<(A, B, C, D, E, F, G), A.Output, A.Failure>
  /// Delivers the values of eight publishers in the order in which they come.
  public typealias Merge8<
    A: Publisher, B: Peer<A>, C: Peer<A>, D: Peer<A>, E: Peer<A>, F: Peer<A>, G: Peer<A>, H: Peer<A>
  > = Merging<(A, B, C, D, E, F, G, H), A.Output, A.Failure>

  /// Delivers the values of any number of publishers of one type in the order in which they come.
  public struct MergeMany<Upstream: Publisher>: Publisher {
    /// The values of all.
    public typealias Output = Upstream.Output
    /// The failures of all.
    public typealias Failure = Upstream.Failure
    /// The publishers. With none, the end comes at once.
    public let publishers: [Upstream]

    /// These publishers.
    @inlinable public init(_ upstream: Upstream...) { publishers = upstream }
    /// These publishers.
    @inlinable public init<S: Swift.Sequence<Upstream>>(_ upstream: S) { publishers = Array(upstream) }

    /// One more.
    public func merge(with other: Upstream) -> MergeMany { MergeMany(publishers + [other]) }

    /// Attaches the subscriber to all.
    @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      Confluence(subscriber, "Merge").join(publishers)
    }
  }
}

// One for each number of publishers: there is no way yet to say of a pack of types that they have something in common.

extension Publishers.Merging {
  /// ``Publishers/Merge``.
  @inlinable public init<A: Publisher<Output, Failure>, B: Publishers.Peer<A>>(_ a: A, _ b: B) where Parts == (A, B) {
    self.init(AnyPublisher(a), AnyPublisher(b))
  }

  /// ``Publishers/Merge3``.
  @inlinable
  public init<
    A: Publisher<Output, Failure>, B: Publishers.Peer<A>, C: Publishers.Peer<A>
  >(_ a: A, _ b: B, _ c: C) where Parts == (A, B, C) {
    self.init(AnyPublisher(a), AnyPublisher(b), AnyPublisher(c))
  }

  /// ``Publishers/Merge4``.
  @inlinable
  public init<
    A: Publisher<Output, Failure>, B: Publishers.Peer<A>, C: Publishers.Peer<A>, D: Publishers.Peer<A>
  >(_ a: A, _ b: B, _ c: C, _ d: D) where Parts == (A, B, C, D) {
    self.init(AnyPublisher(a), AnyPublisher(b), AnyPublisher(c), AnyPublisher(d))
  }

  /// ``Publishers/Merge5``.
  @inlinable
  public init<
    A: Publisher<Output, Failure>, B: Publishers.Peer<A>, C: Publishers.Peer<A>, D: Publishers.Peer<A>,
    E: Publishers.Peer<A>
  >(_ a: A, _ b: B, _ c: C, _ d: D, _ e: E) where Parts == (A, B, C, D, E) {
    self.init(AnyPublisher(a), AnyPublisher(b), AnyPublisher(c), AnyPublisher(d), AnyPublisher(e))
  }

  /// ``Publishers/Merge6``.
  @inlinable
  public init<
    A: Publisher<Output, Failure>, B: Publishers.Peer<A>, C: Publishers.Peer<A>, D: Publishers.Peer<A>,
    E: Publishers.Peer<A>, F: Publishers.Peer<A>
  >(_ a: A, _ b: B, _ c: C, _ d: D, _ e: E, _ f: F) where Parts == (A, B, C, D, E, F) {
    self.init(AnyPublisher(a), AnyPublisher(b), AnyPublisher(c), AnyPublisher(d), AnyPublisher(e), AnyPublisher(f))
  }

  /// ``Publishers/Merge7``.
  @inlinable
  public init<
    A: Publisher<Output, Failure>, B: Publishers.Peer<A>, C: Publishers.Peer<A>, D: Publishers.Peer<A>,
    E: Publishers.Peer<A>, F: Publishers.Peer<A>, G: Publishers.Peer<A>
  >(_ a: A, _ b: B, _ c: C, _ d: D, _ e: E, _ f: F, _ g: G) where Parts == (A, B, C, D, E, F, G) {
    self.init(
      AnyPublisher(a), AnyPublisher(b), AnyPublisher(c), AnyPublisher(d), AnyPublisher(e), AnyPublisher(f),
      AnyPublisher(g)
    )
  }

  /// ``Publishers/Merge8``.
  @inlinable
  public init<
    A: Publisher<Output, Failure>, B: Publishers.Peer<A>, C: Publishers.Peer<A>, D: Publishers.Peer<A>,
    E: Publishers.Peer<A>, F: Publishers.Peer<A>, G: Publishers.Peer<A>, H: Publishers.Peer<A>
  >(_ a: A, _ b: B, _ c: C, _ d: D, _ e: E, _ f: F, _ g: G, _ h: H) where Parts == (A, B, C, D, E, F, G, H) {
    self.init(
      AnyPublisher(a), AnyPublisher(b), AnyPublisher(c), AnyPublisher(d), AnyPublisher(e), AnyPublisher(f),
      AnyPublisher(g), AnyPublisher(h)
    )
  }
}

extension Publishers.MergeMany: Equatable where Upstream: Equatable {}

extension Publisher {
  /// Delivers the values of both in the order in which they come, until both have finished or one fails. While demand
  /// is counted, each is asked for one value ahead.
  @inlinable public func merge<B: Publishers.Peer<Self>>(with other: B) -> Publishers.Merge<Self, B> {
    .init(self, other)
  }

  /// Delivers the values of both in the order in which they come; while demand is counted, one ahead of each.
  @inlinable public func merge(with other: Self) -> Publishers.MergeMany<Self> { .init([self, other]) }

  /// Delivers the values of all three in the order in which they come; while demand is counted, one ahead of each.
  @inlinable
  public func merge<
    B: Publishers.Peer<Self>, C: Publishers.Peer<Self>
  >(with b: B, _ c: C) -> Publishers.Merge3<Self, B, C> {
    .init(self, b, c)
  }

  /// Delivers the values of all four in the order in which they come; while demand is counted, one ahead of each.
  @inlinable
  public func merge<
    B: Publishers.Peer<Self>, C: Publishers.Peer<Self>, D: Publishers.Peer<Self>
  >(with b: B, _ c: C, _ d: D) -> Publishers.Merge4<Self, B, C, D> {
    .init(self, b, c, d)
  }

  /// Delivers the values of all five in the order in which they come; while demand is counted, one ahead of each.
  @inlinable
  public func merge<
    B: Publishers.Peer<Self>, C: Publishers.Peer<Self>, D: Publishers.Peer<Self>, E: Publishers.Peer<Self>
  >(with b: B, _ c: C, _ d: D, _ e: E) -> Publishers.Merge5<Self, B, C, D, E> {
    .init(self, b, c, d, e)
  }

  /// Delivers the values of all six in the order in which they come; while demand is counted, one ahead of each.
  @inlinable
  public func merge<
    B: Publishers.Peer<Self>, C: Publishers.Peer<Self>, D: Publishers.Peer<Self>, E: Publishers.Peer<Self>,
    F: Publishers.Peer<Self>
  >(with b: B, _ c: C, _ d: D, _ e: E, _ f: F) -> Publishers.Merge6<Self, B, C, D, E, F> {
    .init(self, b, c, d, e, f)
  }

  /// Delivers the values of all seven in the order in which they come; while demand is counted, one ahead of each.
  @inlinable
  public func merge<
    B: Publishers.Peer<Self>, C: Publishers.Peer<Self>, D: Publishers.Peer<Self>, E: Publishers.Peer<Self>,
    F: Publishers.Peer<Self>, G: Publishers.Peer<Self>
  >(with b: B, _ c: C, _ d: D, _ e: E, _ f: F, _ g: G) -> Publishers.Merge7<Self, B, C, D, E, F, G> {
    .init(self, b, c, d, e, f, g)
  }

  /// Delivers the values of all eight in the order in which they come; while demand is counted, one ahead of each.
  @inlinable
  public func merge<
    B: Publishers.Peer<Self>, C: Publishers.Peer<Self>, D: Publishers.Peer<Self>, E: Publishers.Peer<Self>,
    F: Publishers.Peer<Self>, G: Publishers.Peer<Self>, H: Publishers.Peer<Self>
  >(with b: B, _ c: C, _ d: D, _ e: E, _ f: F, _ g: G, _ h: H) -> Publishers.Merge8<Self, B, C, D, E, F, G, H> {
    .init(self, b, c, d, e, f, g, h)
  }
}
