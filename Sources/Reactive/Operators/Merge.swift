// Operators that deliver the values of several publishers in the order of their arrival.

extension Publishers {
  /// A publisher with the value and failure types of `P`.
  public typealias Peer<P: Publisher> = Publisher<P.Output, P.Failure>

  /// Delivers the values of several publishers, whose types are `Parts`, in the order of their arrival.
  public struct Merging<Parts, Output, Failure: Error>: Publisher {
    @usableFromInline let parts: [AnyPublisher<Output, Failure>]

    @inlinable init(_ parts: AnyPublisher<Output, Failure>...) { self.parts = parts }

    /// Attaches the subscriber to all publishers.
    @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      Confluence(subscriber, "Merge").join(parts)
    }
  }

  /// Delivers the values of two publishers in the order of their arrival.
  public typealias Merge<A: Publisher, B: Peer<A>> = Merging<(A, B), A.Output, A.Failure>
  /// Delivers the values of three publishers in the order of their arrival.
  public typealias Merge3<A: Publisher, B: Peer<A>, C: Peer<A>> = Merging<(A, B, C), A.Output, A.Failure>
  /// Delivers the values of four publishers in the order of their arrival.
  public typealias Merge4<A: Publisher, B: Peer<A>, C: Peer<A>, D: Peer<A>> = Merging<(A, B, C, D), A.Output, A.Failure>
  /// Delivers the values of five publishers in the order of their arrival.
  public typealias Merge5<A: Publisher, B: Peer<A>, C: Peer<A>, D: Peer<A>, E: Peer<A>> =
    Merging<(A, B, C, D, E), A.Output, A.Failure>
  /// Delivers the values of six publishers in the order of their arrival.
  public typealias Merge6<A: Publisher, B: Peer<A>, C: Peer<A>, D: Peer<A>, E: Peer<A>, F: Peer<A>> =
    Merging<(A, B, C, D, E, F), A.Output, A.Failure>
  /// Delivers the values of seven publishers in the order of their arrival.
  public typealias Merge7<A: Publisher, B: Peer<A>, C: Peer<A>, D: Peer<A>, E: Peer<A>, F: Peer<A>, G: Peer<A>> =
    Merging<(A, B, C, D, E, F, G), A.Output, A.Failure>
  /// Delivers the values of eight publishers in the order of their arrival.
  public typealias Merge8<
    A: Publisher, B: Peer<A>, C: Peer<A>, D: Peer<A>, E: Peer<A>, F: Peer<A>, G: Peer<A>, H: Peer<A>
  > = Merging<(A, B, C, D, E, F, G, H), A.Output, A.Failure>

  /// Delivers the values of any number of publishers of one type in the order of their arrival.
  public struct MergeMany<Upstream: Publisher>: Publisher {
    /// The values of all publishers.
    public typealias Output = Upstream.Output
    /// The failure type of all publishers.
    public typealias Failure = Upstream.Failure
    /// The publishers. If there are none, the merged publisher finishes immediately.
    public let publishers: [Upstream]

    /// Creates a publisher that merges these publishers.
    @inlinable public init(_ upstream: Upstream...) { publishers = upstream }
    /// Creates a publisher that merges these publishers.
    @inlinable public init<S: Swift.Sequence<Upstream>>(_ upstream: S) { publishers = Array(upstream) }

    /// Returns a publisher that also merges `other`.
    public func merge(with other: Upstream) -> MergeMany { MergeMany(publishers + [other]) }

    /// Attaches the subscriber to all publishers.
    @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      Confluence(subscriber, "Merge").join(publishers)
    }
  }
}

// One initializer for each number of publishers: a parameter pack cannot yet require equal associated types.

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
  /// Delivers the values of both publishers in the order of their arrival, until both have finished or one fails. While
  /// the demand is finite, one value ahead is requested from each.
  @inlinable public func merge<B: Publishers.Peer<Self>>(with other: B) -> Publishers.Merge<Self, B> {
    .init(self, other)
  }

  /// Delivers the values of both publishers in the order of their arrival; while demand is finite, one ahead of each.
  @inlinable public func merge(with other: Self) -> Publishers.MergeMany<Self> { .init([self, other]) }

  /// Delivers the values of three publishers in the order of their arrival; while demand is finite, one ahead of each.
  @inlinable
  public func merge<
    B: Publishers.Peer<Self>, C: Publishers.Peer<Self>
  >(with b: B, _ c: C) -> Publishers.Merge3<Self, B, C> {
    .init(self, b, c)
  }

  /// Delivers the values of four publishers in the order of their arrival; while demand is finite, one ahead of each.
  @inlinable
  public func merge<
    B: Publishers.Peer<Self>, C: Publishers.Peer<Self>, D: Publishers.Peer<Self>
  >(with b: B, _ c: C, _ d: D) -> Publishers.Merge4<Self, B, C, D> {
    .init(self, b, c, d)
  }

  /// Delivers the values of five publishers in the order of their arrival; while demand is finite, one ahead of each.
  @inlinable
  public func merge<
    B: Publishers.Peer<Self>, C: Publishers.Peer<Self>, D: Publishers.Peer<Self>, E: Publishers.Peer<Self>
  >(with b: B, _ c: C, _ d: D, _ e: E) -> Publishers.Merge5<Self, B, C, D, E> {
    .init(self, b, c, d, e)
  }

  /// Delivers the values of six publishers in the order of their arrival; while demand is finite, one ahead of each.
  @inlinable
  public func merge<
    B: Publishers.Peer<Self>, C: Publishers.Peer<Self>, D: Publishers.Peer<Self>, E: Publishers.Peer<Self>,
    F: Publishers.Peer<Self>
  >(with b: B, _ c: C, _ d: D, _ e: E, _ f: F) -> Publishers.Merge6<Self, B, C, D, E, F> {
    .init(self, b, c, d, e, f)
  }

  /// Delivers the values of seven publishers in the order of their arrival; while demand is finite, one ahead of each.
  @inlinable
  public func merge<
    B: Publishers.Peer<Self>, C: Publishers.Peer<Self>, D: Publishers.Peer<Self>, E: Publishers.Peer<Self>,
    F: Publishers.Peer<Self>, G: Publishers.Peer<Self>
  >(with b: B, _ c: C, _ d: D, _ e: E, _ f: F, _ g: G) -> Publishers.Merge7<Self, B, C, D, E, F, G> {
    .init(self, b, c, d, e, f, g)
  }

  /// Delivers the values of eight publishers in the order of their arrival; while demand is finite, one ahead of each.
  @inlinable
  public func merge<
    B: Publishers.Peer<Self>, C: Publishers.Peer<Self>, D: Publishers.Peer<Self>, E: Publishers.Peer<Self>,
    F: Publishers.Peer<Self>, G: Publishers.Peer<Self>, H: Publishers.Peer<Self>
  >(with b: B, _ c: C, _ d: D, _ e: E, _ f: F, _ g: G, _ h: H) -> Publishers.Merge8<Self, B, C, D, E, F, G, H> {
    .init(self, b, c, d, e, f, g, h)
  }
}
