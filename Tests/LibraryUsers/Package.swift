// swift-tools-version: 6.2
import PackageDescription

/// Programs that use one library each. `run` builds them where the headers of the daemon's C libraries are absent.
let package = Package(
  name: "LibraryUsers",
  dependencies: [.package(name: "streamd", path: "../..")],
  targets: [
    .executableTarget(name: "OfReactive", dependencies: [.product(name: "Reactive", package: "streamd")]),
    .executableTarget(
      name: "OfClient",
      dependencies: [
        .product(name: "Reactive", package: "streamd"), .product(name: "StreamClient", package: "streamd"),
      ]),
  ]
)
