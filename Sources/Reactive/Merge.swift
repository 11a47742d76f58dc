// Operators that deliver the values of several publishers in the order in which they come.

extension Publishers {
  /// Delivers the values of two publishers in the order in which they come.
  public struct Merge<A: Publisher, B: Publisher>: Publisher
  where A.Output == B.Output, A.Failure == B.Failure {
    /// The values of all.
    public typealias Output = A.Output
    /// The failures of all.
    public typealias Failure = A.Failure
    /// The first.
    public let a: A
    /// The second.
    public let b: B

    /// `a.merge(with: b)`
    public init(_ a: A, _ b: B) {
      self.a = a
      self.b = b
    }

    /// Attaches the subscriber to all.
    @inlinable
    public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
      Confluence(subscriber).merge { confluence in
        confluence.add(a)
        confluence.add(b)
      }
    }
  }

  /// Delivers the values of three publishers in the order in which they come.
  public struct Merge3<A: Publisher, B: Publisher, C: Publisher>: Publisher
  where A.Output == B.Output, A.Failure == B.Failure, A.Output == C.Output, A.Failure == C.Failure {
    /// The values of all.
    public typealias Output = A.Output
    /// The failures of all.
    public typealias Failure = A.Failure
    /// The first.
    public let a: A
    /// The second.
    public let b: B
    /// The third.
    public let c: C

    /// `a.merge(with: b, c)`
    public init(_ a: A, _ b: B, _ c: C) {
      self.a = a
      self.b = b
      self.c = c
    }

    /// Attaches the subscriber to all.
    @inlinable
    public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
      Confluence(subscriber).merge { confluence in
        confluence.add(a)
        confluence.add(b)
        confluence.add(c)
      }
    }
  }

  /// Delivers the values of four publishers in the order in which they come.
  public struct Merge4<A: Publisher, B: Publisher, C: Publisher, D: Publisher>: Publisher
  where
    A.Output == B.Output, A.Failure == B.Failure, A.Output == C.Output, A.Failure == C.Failure, A.Output == D.Output,
    A.Failure == D.Failure
  {
    /// The values of all.
    public typealias Output = A.Output
    /// The failures of all.
    public typealias Failure = A.Failure
    /// The first.
    public let a: A
    /// The second.
    public let b: B
    /// The third.
    public let c: C
    /// The fourth.
    public let d: D

    /// `a.merge(with: b, c, d)`
    public init(_ a: A, _ b: B, _ c: C, _ d: D) {
      self.a = a
      self.b = b
      self.c = c
      self.d = d
    }

    /// Attaches the subscriber to all.
    @inlinable
    public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
      Confluence(subscriber).merge { confluence in
        confluence.add(a)
        confluence.add(b)
        confluence.add(c)
        confluence.add(d)
      }
    }
  }

  /// Delivers the values of five publishers in the order in which they come.
  public struct Merge5<A: Publisher, B: Publisher, C: Publisher, D: Publisher, E: Publisher>: Publisher
  where
    A.Output == B.Output, A.Failure == B.Failure, A.Output == C.Output, A.Failure == C.Failure, A.Output == D.Output,
    A.Failure == D.Failure, A.Output == E.Output, A.Failure == E.Failure
  {
    /// The values of all.
    public typealias Output = A.Output
    /// The failures of all.
    public typealias Failure = A.Failure
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
    public init(_ a: A, _ b: B, _ c: C, _ d: D, _ e: E) {
      self.a = a
      self.b = b
      self.c = c
      self.d = d
      self.e = e
    }

    /// Attaches the subscriber to all.
    @inlinable
    public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
      Confluence(subscriber).merge { confluence in
        confluence.add(a)
        confluence.add(b)
        confluence.add(c)
        confluence.add(d)
        confluence.add(e)
      }
    }
  }

  /// Delivers the values of six publishers in the order in which they come.
  public struct Merge6<A: Publisher, B: Publisher, C: Publisher, D: Publisher, E: Publisher, F: Publisher>: Publisher
  where
    A.Output == B.Output, A.Failure == B.Failure, A.Output == C.Output, A.Failure == C.Failure, A.Output == D.Output,
    A.Failure == D.Failure, A.Output == E.Output, A.Failure == E.Failure, A.Output == F.Output, A.Failure == F.Failure
  {
    /// The values of all.
    public typealias Output = A.Output
    /// The failures of all.
    public typealias Failure = A.Failure
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
      self.a = a
      self.b = b
      self.c = c
      self.d = d
      self.e = e
      self.f = f
    }

    /// Attaches the subscriber to all.
    @inlinable
    public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
      Confluence(subscriber).merge { confluence in
        confluence.add(a)
        confluence.add(b)
        confluence.add(c)
        confluence.add(d)
        confluence.add(e)
        confluence.add(f)
      }
    }
  }

  /// Delivers the values of seven publishers in the order in which they come.
  public struct Merge7<
    A: Publisher, B: Publisher, C: Publisher, D: Publisher, E: Publisher, F: Publisher, G: Publisher
  >: Publisher
  where
    A.Output == B.Output, A.Failure == B.Failure, A.Output == C.Output, A.Failure == C.Failure, A.Output == D.Output,
    A.Failure == D.Failure, A.Output == E.Output, A.Failure == E.Failure, A.Output == F.Output, A.Failure == F.Failure,
    A.Output == G.Output, A.Failure == G.Failure
  {
    /// The values of all.
    public typealias Output = A.Output
    /// The failures of all.
    public typealias Failure = A.Failure
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
      self.a = a
      self.b = b
      self.c = c
      self.d = d
      self.e = e
      self.f = f
      self.g = g
    }

    /// Attaches the subscriber to all.
    @inlinable
    public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
      Confluence(subscriber).merge { confluence in
        confluence.add(a)
        confluence.add(b)
        confluence.add(c)
        confluence.add(d)
        confluence.add(e)
        confluence.add(f)
        confluence.add(g)
      }
    }
  }

  /// Delivers the values of eight publishers in the order in which they come.
  public struct Merge8<
    A: Publisher, B: Publisher, C: Publisher, D: Publisher, E: Publisher, F: Publisher, G: Publisher, H: Publisher
  >: Publisher
  where
    A.Output == B.Output, A.Failure == B.Failure, A.Output == C.Output, A.Failure == C.Failure, A.Output == D.Output,
    A.Failure == D.Failure, A.Output == E.Output, A.Failure == E.Failure, A.Output == F.Output, A.Failure == F.Failure,
    A.Output == G.Output, A.Failure == G.Failure, A.Output == H.Output, A.Failure == H.Failure
  {
    /// The values of all.
    public typealias Output = A.Output
    /// The failures of all.
    public typealias Failure = A.Failure
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
      self.a = a
      self.b = b
      self.c = c
      self.d = d
      self.e = e
      self.f = f
      self.g = g
      self.h = h
    }

    /// Attaches the subscriber to all.
    @inlinable
    public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
      Confluence(subscriber).merge { confluence in
        confluence.add(a)
        confluence.add(b)
        confluence.add(c)
        confluence.add(d)
        confluence.add(e)
        confluence.add(f)
        confluence.add(g)
        confluence.add(h)
      }
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
    @inlinable
    public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
      Confluence(subscriber).merge { confluence in
        for publisher in publishers { confluence.add(publisher) }
      }
    }
  }
}

extension Confluence {
  /// Gives the subscriber its subscription, then attaches to all publishers.
  @inlinable
  func merge(addAll: (Confluence) -> Void) {
    enter()
    begin()
    addAll(self)
    finishOne()
  }
}

extension Publisher {
  /// Delivers the values of both in the order in which they come, until both have finished or one fails. While demand is
  /// counted, each is asked for one value ahead.
  public func merge<B: Publisher>(with other: B) -> Publishers.Merge<Self, B>
  where B.Output == Output, B.Failure == Failure {
    Publishers.Merge(self, other)
  }

  /// Delivers the values of both in the order in which they come.
  public func merge(with other: Self) -> Publishers.MergeMany<Self> { Publishers.MergeMany([self, other]) }

  /// Delivers the values of all three in the order in which they come.
  public func merge<B: Publisher, C: Publisher>(
    with b: B, _ c: C
  ) -> Publishers.Merge3<Self, B, C>
  where B.Output == Output, B.Failure == Failure, C.Output == Output, C.Failure == Failure {
    Publishers.Merge3(self, b, c)
  }

  /// Delivers the values of all four in the order in which they come.
  public func merge<B: Publisher, C: Publisher, D: Publisher>(
    with b: B, _ c: C, _ d: D
  ) -> Publishers.Merge4<Self, B, C, D>
  where
    B.Output == Output, B.Failure == Failure, C.Output == Output, C.Failure == Failure, D.Output == Output,
    D.Failure == Failure
  {
    Publishers.Merge4(self, b, c, d)
  }

  /// Delivers the values of all five in the order in which they come.
  public func merge<B: Publisher, C: Publisher, D: Publisher, E: Publisher>(
    with b: B, _ c: C, _ d: D, _ e: E
  ) -> Publishers.Merge5<Self, B, C, D, E>
  where
    B.Output == Output, B.Failure == Failure, C.Output == Output, C.Failure == Failure, D.Output == Output,
    D.Failure == Failure, E.Output == Output, E.Failure == Failure
  {
    Publishers.Merge5(self, b, c, d, e)
  }

  /// Delivers the values of all six in the order in which they come.
  public func merge<B: Publisher, C: Publisher, D: Publisher, E: Publisher, F: Publisher>(
    with b: B, _ c: C, _ d: D, _ e: E, _ f: F
  ) -> Publishers.Merge6<Self, B, C, D, E, F>
  where
    B.Output == Output, B.Failure == Failure, C.Output == Output, C.Failure == Failure, D.Output == Output,
    D.Failure == Failure, E.Output == Output, E.Failure == Failure, F.Output == Output, F.Failure == Failure
  {
    Publishers.Merge6(self, b, c, d, e, f)
  }

  /// Delivers the values of all seven in the order in which they come.
  public func merge<B: Publisher, C: Publisher, D: Publisher, E: Publisher, F: Publisher, G: Publisher>(
    with b: B, _ c: C, _ d: D, _ e: E, _ f: F, _ g: G
  ) -> Publishers.Merge7<Self, B, C, D, E, F, G>
  where
    B.Output == Output, B.Failure == Failure, C.Output == Output, C.Failure == Failure, D.Output == Output,
    D.Failure == Failure, E.Output == Output, E.Failure == Failure, F.Output == Output, F.Failure == Failure,
    G.Output == Output, G.Failure == Failure
  {
    Publishers.Merge7(self, b, c, d, e, f, g)
  }

  /// Delivers the values of all eight in the order in which they come.
  public func merge<B: Publisher, C: Publisher, D: Publisher, E: Publisher, F: Publisher, G: Publisher, H: Publisher>(
    with b: B, _ c: C, _ d: D, _ e: E, _ f: F, _ g: G, _ h: H
  ) -> Publishers.Merge8<Self, B, C, D, E, F, G, H>
  where
    B.Output == Output, B.Failure == Failure, C.Output == Output, C.Failure == Failure, D.Output == Output,
    D.Failure == Failure, E.Output == Output, E.Failure == Failure, F.Output == Output, F.Failure == Failure,
    G.Output == Output, G.Failure == Failure, H.Output == Output, H.Failure == Failure
  {
    Publishers.Merge8(self, b, c, d, e, f, g, h)
  }
}
