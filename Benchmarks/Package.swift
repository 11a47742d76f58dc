// swift-tools-version: 6.2
import PackageDescription

/// The settings of streamd's own modules and tests: no warnings, and one optimisation across all modules for release.
let settings: [SwiftSetting] = [
  .treatAllWarnings(as: .error),
  .unsafeFlags(["-cross-module-optimization", "-enforce-exclusivity=unchecked"], .when(configuration: .release)),
]

/// A folder with swift-async-algorithms, the peer of the row `async`; without it that row has no peer.
let peer = Context.environment["STREAMD_ASYNC_ALGORITHMS"]

/// The load generator of `deploy/bench`. A package of its own, so that a build of streamd does not compile it.
let package = Package(
  name: "Benchmarks",
  dependencies: [.package(name: "streamd", path: "..")]
    + (peer.map { [.package(name: "swift-async-algorithms", path: $0)] } ?? []),
  targets: [
    .executableTarget(
      name: "streambench",
      dependencies: [
        .product(name: "_CLinux", package: "streamd"), .product(name: "_HTTP", package: "streamd"),
        .product(name: "_RSocket", package: "streamd"),
        .product(name: "_StreamRuntime", package: "streamd"), .product(name: "Reactive", package: "streamd"),
        .product(name: "StreamClient", package: "streamd"),
      ] + (peer == nil ? [] : [.product(name: "AsyncAlgorithms", package: "swift-async-algorithms")]),
      swiftSettings: settings + [.strictMemorySafety()] + (peer == nil ? [] : [.define("ASYNC_ALGORITHMS")])),
    .testTarget(name: "streambenchTests", dependencies: ["streambench"], swiftSettings: settings),
  ],
  swiftLanguageModes: [.v6]
)
