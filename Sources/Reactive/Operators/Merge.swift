// Operators that deliver the values of several publishers in the order of their arrival.

extension Publishers {
  /// A publisher with the value and failure types of `P`.
  public typealias Peer<P: Publisher> = Publisher<P.Output, P.Failure>
  /// The operator that merges publishers with the value and failure types of `P`.
  public typealias Merged<P: Publisher> = MergeMany<AnyPublisher<P.Output, P.Failure>>

  /// Delivers the values of two publishers in the order of their arrival.
  public struct Merge<A: Publisher, B: Peer<A>>: CompositePublisher {
    /// A merged publisher.
    public let (a, b): (A, B)

    /// `a.merge(with: b)`
    @inlinable public init(_ a: A, _ b: B) { (self.a, self.b) = (a, b) }

    /// The publishers as one type.
    @inlinable public var body: Merged<A> { .init(erasing: a, b) }
  }

  /// Delivers the values of three publishers in the order of their arrival.
  public struct Merge3<A: Publisher, B: Peer<A>, C: Peer<A>>: CompositePublisher {
    /// A merged publisher.
    public let (a, b, c): (A, B, C)

    /// `a.merge(with: b, c)`
    @inlinable public init(_ a: A, _ b: B, _ c: C) { (self.a, self.b, self.c) = (a, b, c) }

    /// The publishers as one type.
    @inlinable public var body: Merged<A> { .init(erasing: a, b, c) }
  }

  /// Delivers the values of four publishers in the order of their arrival.
  public struct Merge4<A: Publisher, B: Peer<A>, C: Peer<A>, D: Peer<A>>: CompositePublisher {
    /// A merged publisher.
    public let (a, b, c, d): (A, B, C, D)

    /// `a.merge(with: b, c, d)`
    @inlinable public init(_ a: A, _ b: B, _ c: C, _ d: D) { (self.a, self.b, self.c, self.d) = (a, b, c, d) }

    /// The publishers as one type.
    @inlinable public var body: Merged<A> { .init(erasing: a, b, c, d) }
  }

  /// Delivers the values of five publishers in the order of their arrival.
  public struct Merge5<A: Publisher, B: Peer<A>, C: Peer<A>, D: Peer<A>, E: Peer<A>>: CompositePublisher {
    /// A merged publisher.
    public let (a, b, c, d, e): (A, B, C, D, E)

    /// `a.merge(with: b, c, d, e)`
    @inlinable public init(_ a: A, _ b: B, _ c: C, _ d: D, _ e: E) {
      (self.a, self.b, self.c, self.d, self.e) = (a, b, c, d, e)
    }

    /// The publishers as one type.
    @inlinable public var body: Merged<A> { .init(erasing: a, b, c, d, e) }
  }

  /// Delivers the values of six publishers in the order of their arrival.
  public struct Merge6<A: Publisher, B: Peer<A>, C: Peer<A>, D: Peer<A>, E: Peer<A>, F: Peer<A>>: CompositePublisher {
    /// A merged publisher.
    public let (a, b, c, d, e, f): (A, B, C, D, E, F)

    /// `a.merge(with: b, c, d, e, f)`
    @inlinable public init(_ a: A, _ b: B, _ c: C, _ d: D, _ e: E, _ f: F) {
      (self.a, self.b, self.c, self.d, self.e, self.f) = (a, b, c, d, e, f)
    }

    /// The publishers as one type.
    @inlinable public var body: Merged<A> { .init(erasing: a, b, c, d, e, f) }
  }

  /// Delivers the values of seven publishers in the order of their arrival.
  public struct Merge7<
    A: Publisher, B: Peer<A>, C: Peer<A>, D: Peer<A>, E: Peer<A>, F: Peer<A>, G: Peer<A>
  >: CompositePublisher {
    /// A merged publisher.
    public let (a, b, c, d, e, f, g): (A, B, C, D, E, F, G)

    /// `a.merge(with: b, c, d, e, f, g)`
    @inlinable public init(_ a: A, _ b: B, _ c: C, _ d: D, _ e: E, _ f: F, _ g: G) {
      (self.a, self.b, self.c, self.d, self.e, self.f, self.g) = (a, b, c, d, e, f, g)
    }

    /// The publishers as one type.
    @inlinable public var body: Merged<A> { .init(erasing: a, b, c, d, e, f, g) }
  }

  /// Delivers the values of eight publishers in the order of their arrival.
  public struct Merge8<
    A: Publisher, B: Peer<A>, C: Peer<A>, D: Peer<A>, E: Peer<A>, F: Peer<A>, G: Peer<A>, H: Peer<A>
  >: CompositePublisher {
    /// A merged publisher.
    public let (a, b, c, d, e, f, g, h): (A, B, C, D, E, F, G, H)

    /// `a.merge(with: b, c, d, e, f, g, h)`
    @inlinable public init(_ a: A, _ b: B, _ c: C, _ d: D, _ e: E, _ f: F, _ g: G, _ h: H) {
      (self.a, self.b, self.c, self.d, self.e, self.f, self.g, self.h) = (a, b, c, d, e, f, g, h)
    }

    /// The publishers as one type.
    @inlinable public var body: Merged<A> { .init(erasing: a, b, c, d, e, f, g, h) }
  }

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
      MergeLink(subscriber, "Merge").join(publishers)
    }
  }
}

extension Publishers.MergeMany {
  @inlinable init<T, E>(erasing publishers: any Publisher<T, E>...) where Upstream == AnyPublisher<T, E> {
    self.init(publishers.map { $0.eraseToAnyPublisher() })
  }
}

extension Publishers.Merge: Equatable where A: Equatable, B: Equatable {}
extension Publishers.Merge3: Equatable where A: Equatable, B: Equatable, C: Equatable {}
extension Publishers.Merge4: Equatable where A: Equatable, B: Equatable, C: Equatable, D: Equatable {}
extension Publishers.Merge5: Equatable where A: Equatable, B: Equatable, C: Equatable, D: Equatable, E: Equatable {}
extension Publishers.Merge6: Equatable
where A: Equatable, B: Equatable, C: Equatable, D: Equatable, E: Equatable, F: Equatable {}
extension Publishers.Merge7: Equatable
where A: Equatable, B: Equatable, C: Equatable, D: Equatable, E: Equatable, F: Equatable, G: Equatable {}
extension Publishers.Merge8: Equatable
where A: Equatable, B: Equatable, C: Equatable, D: Equatable, E: Equatable, F: Equatable, G: Equatable, H: Equatable {}
extension Publishers.MergeMany: Equatable where Upstream: Equatable {}

extension Publisher {
  /// Delivers the values of both publishers in the order of their arrival, until both have finished or one fails. While
  /// the demand is finite, one value ahead is requested from each, the first when it attaches.
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
